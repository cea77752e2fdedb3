/** Planted bugs in peers' own settings: rotation of box keys, and consent. */
import type { Replies, RequestType } from '@sealpost/core'
import { OPEN } from '@sealpost/protocol'
import { type RequestCall, type RequestStatements, SimulatedRequests } from '../shard/simulated-requests.ts'
import { realParts } from '../world.ts'
import type { Mutant } from './mutants.ts'

class FormerKeysForgotten extends SimulatedRequests {
  protected override statementsOf(): RequestStatements {
    const lookupHistory: RequestStatements['lookupHistory'] = ({ meshId }, { peer }) =>
      this.life.statements.findBindings(meshId, [peer])
    return { ...super.statementsOf(), lookupHistory }
  }
}

class RotationNotStored extends SimulatedRequests {
  protected override statementsOf(): RequestStatements {
    return { ...super.statementsOf(), bind: () => 'done' }
  }
}

class ConsentIgnored extends SimulatedRequests {
  protected override async reply<Type extends RequestType>(...asked: RequestCall<Type>): Promise<Replies[Type]> {
    const reply = await super.reply(...asked)
    return asked[0] === 'consent' ? ({ ...(reply as Replies['consent']), consent: OPEN } as Replies[Type]) : reply
  }
}

const mutant = (name: string, Requests: typeof SimulatedRequests, breaks: RegExp): Mutant => ({
  name,
  breaks,
  parts: { ...realParts, Requests },
})

export const mutantsOfOwners: readonly Mutant[] = [
  mutant('former keys are forgotten', FormerKeysForgotten, /^P3.*does_not_open/),
  mutant('a rotation is acknowledged and not stored', RotationNotStored, /^P3.*does_not_open/),
  mutant('a consent is acknowledged and ignored', ConsentIgnored, /^consent/),
]
