/** Bugs on purpose in what peers say of themselves: how box keys turn, and whose mail they take. */
import type { Asker, SocketId } from '@sealpost/core'
import { type FrameOf, OPEN } from '@sealpost/protocol'
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

class ConsentUnheeded extends ShardLife {
  override consent(no: SocketId, asker: Asker, consent: FrameOf<'consent'>): void {
    const { consents, store } = this.world
    const answer = consents.change(store, asker, consent)
    this.heard.heardOf(asker.meshId, asker.peer, answer.consent)
    this.after(0, () => this.step(() => this.engine.owners.consented(no, asker, consent, { ...answer, consent: OPEN })))
  }
}

const mutant = (name: string, Life: typeof ShardLife, breaks: RegExp): Mutant => ({
  name,
  breaks,
  parts: { ...realParts, Life },
})

export const mutantsOfOwners: readonly Mutant[] = [
  mutant('former keys are forgotten', FormerKeysForgotten, /^P3.*does_not_open/),
  mutant('a turn is answered and not kept', TurnNotKept, /^P3.*does_not_open/),
  mutant('a consent is answered and not heeded', ConsentUnheeded, /^consent/),
]
