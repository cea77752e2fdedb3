/** Bugs on purpose in how box keys turn. */
import type { Asker, SocketId } from '@sealpost/core'
import type { FrameOf } from '@sealpost/protocol'
import type { MeshId } from '@sealpost/std'
import type { Mutant } from './mutants.ts'
import { ShardLife } from './shard-life.ts'
import { realParts } from './world.ts'

class FormerKeysForgotten extends ShardLife {
  override lookupHistory(no: SocketId, meshId: MeshId, lookup: FrameOf<'lookupHistory'>): void {
    this.ask(
      'history',
      () => this.statements.findBindings(meshId, [lookup.peer]),
      (bindings) => this.engine.owners.historyFound(no, lookup, bindings),
    )
  }
}

class TurnNotKept extends ShardLife {
  override bind(no: SocketId, asker: Asker, bind: FrameOf<'bind'>): void {
    this.after(0, () => this.step(() => this.engine.owners.bound(no, asker, bind, 'done')))
  }
}

const mutant = (name: string, Life: typeof ShardLife): Mutant => ({
  name,
  breaks: /^P3.*does_not_open/,
  parts: { ...realParts, Life },
})

export const mutantsOfKeys: readonly Mutant[] = [
  mutant('former keys are forgotten', FormerKeysForgotten),
  mutant('a turn is answered and not kept', TurnNotKept),
]
