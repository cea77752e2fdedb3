/** Bugs on purpose in what becomes of a peer that was revoked. */
import type { SocketId } from '@sealpost/core'
import type { Append, FrameOf, SessionRef } from '@sealpost/protocol'
import type { Batch, Decided } from '@sealpost/queue'
import type { Mutant } from './mutants.ts'
import { ShardLife } from './shard-life.ts'
import { WatchedStatements } from './watched-statements.ts'
import { realParts, type World, type WorldParts } from './world.ts'

class SessionGoesOn extends ShardLife {
  protected override revoked(no: SocketId, revoke: FrameOf<'revoke'>): void {
    this.engine.revoked(no, revoke, [])
  }
}

class NobodyAsksHowItStands extends ShardLife {
  override checkStandings(): void {
    return
  }
}

class CommitsForTheRevoked extends WatchedStatements {
  override commitAtOnce(batch: Batch): Decided {
    return asIfNobodyWere(this.world, () => super.commitAtOnce(batch))
  }
  override commitCarefully(appends: readonly Append[]): Decided {
    return asIfNobodyWere(this.world, () => super.commitCarefully(appends))
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
  mutant('the session of a revoked peer goes on', { Life: SessionGoesOn }),
  mutant('no shard asks how its sessions stand', { Life: NobodyAsksHowItStands }),
  mutant('a commit looks at no revocation', { Statements: CommitsForTheRevoked }),
  mutant('an opening looks at no revocation', { Statements: OpensForTheRevoked }),
]
