/** Planted bugs in the handling of revoked peers. */
import type { Replies, RequestType } from '@sealpost/core'
import type { Append, SessionRef } from '@sealpost/protocol'
import type { Batch, StatementOutcomes } from '@sealpost/queue'
import { type RequestCall, SimulatedRequests } from '../shard/simulated-requests.ts'
import { WatchedDriver } from '../shard/watched-driver.ts'
import { WatchedStatements } from '../shard/watched-statements.ts'
import { realParts, type World, type WorldParts } from '../world.ts'
import type { Mutant } from './mutants.ts'

class SessionContinues extends SimulatedRequests {
  protected override async reply<Type extends RequestType>(...asked: RequestCall<Type>): Promise<Replies[Type]> {
    const reply = await super.reply(...asked)
    return asked[0] === 'revoke' ? ({ outcome: 'done', ended: [] } as unknown as Replies[Type]) : reply
  }
}

class SessionsUnchecked extends WatchedDriver {
  override checkSessions(): void {
    return
  }
}

class CommitsForTheRevoked extends WatchedStatements {
  override commitAtOnce(batch: Batch): StatementOutcomes {
    return withoutRevocations(this.world, () => super.commitAtOnce(batch))
  }
  override commitChecked(appends: readonly Append[]): StatementOutcomes {
    return withoutRevocations(this.world, () => super.commitChecked(appends))
  }
}

class OpensForTheRevoked extends WatchedStatements {
  override findMembers(...asked: Parameters<WatchedStatements['findMembers']>) {
    return super.findMembers(...asked).map((member) => ({ ...member, isRevoked: false }))
  }
  override open(session: SessionRef): number | null {
    return withoutRevocations(this.world, () => super.open(session))
  }
}

function withoutRevocations<T>({ store, revocations }: World, look: () => T): T {
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
  mutant('the session of a revoked peer continues', { Requests: SessionContinues }),
  mutant('no shard checks its sessions', { Driver: SessionsUnchecked }),
  mutant('a commit ignores revocations', { Statements: CommitsForTheRevoked }),
  mutant('an opening ignores revocations', { Statements: OpensForTheRevoked }),
]
