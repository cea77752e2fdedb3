/** Bugs on purpose in what becomes of a peer that was revoked. */
import type { Replies, RequestType } from '@sealpost/core'
import type { Append, SessionRef } from '@sealpost/protocol'
import type { Batch, StatementOutcomes } from '@sealpost/queue'
import { type RequestCall, SimulatedRequests } from '../shard/simulated-requests.ts'
import { WatchedDriver } from '../shard/watched-driver.ts'
import { WatchedStatements } from '../shard/watched-statements.ts'
import { realParts, type World, type WorldParts } from '../world.ts'
import type { Mutant } from './mutants.ts'

class SessionGoesOn extends SimulatedRequests {
  protected override async reply<Type extends RequestType>(...asked: RequestCall<Type>): Promise<Replies[Type]> {
    const reply = await super.reply(...asked)
    return asked[0] === 'revoke' ? ({ outcome: 'done', ended: [] } as unknown as Replies[Type]) : reply
  }
}

class NobodyAsksHowItStands extends WatchedDriver {
  override checkSessions(): void {
    return
  }
}

class CommitsForTheRevoked extends WatchedStatements {
  override commitAtOnce(batch: Batch): StatementOutcomes {
    return asIfNobodyWere(this.world, () => super.commitAtOnce(batch))
  }
  override commitChecked(appends: readonly Append[]): StatementOutcomes {
    return asIfNobodyWere(this.world, () => super.commitChecked(appends))
  }
}

class OpensForTheRevoked extends WatchedStatements {
  override findMembers(...asked: Parameters<WatchedStatements['findMembers']>) {
    return super.findMembers(...asked).map((member) => ({ ...member, isRevoked: false }))
  }
  override open(session: SessionRef): number | null {
    return asIfNobodyWere(this.world, () => super.open(session))
  }
}

/** For as long as a statement looks. */
function asIfNobodyWere<T>({ store, revocations }: World, look: () => T): T {
  const member = store.find(revocations.leaver.meshId, revocations.leaver.peer)!
  const { isRevoked } = member
  member.isRevoked = false
  const answer = look()
  member.isRevoked = isRevoked
  return answer
}

const mutant = (name: string, parts: Partial<WorldParts>): Mutant => ({
  name,
  breaks: /^revocation/,
  parts: { ...realParts, ...parts },
})

export const mutantsOfLeavers: readonly Mutant[] = [
  mutant('the session of a revoked peer goes on', { Requests: SessionGoesOn }),
  mutant('no shard asks how its sessions stand', { Driver: NobodyAsksHowItStands }),
  mutant('a commit looks at no revocation', { Statements: CommitsForTheRevoked }),
  mutant('an opening looks at no revocation', { Statements: OpensForTheRevoked }),
]
