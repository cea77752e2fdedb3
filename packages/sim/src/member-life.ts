/** What members ask about each other and of what is theirs, answered from the simulated database. */
import type { Asker, Engine, RevokedMember, SocketId } from '@sealpost/core'
import { type FrameOf, type GiveBack, ROSTER_MAX } from '@sealpost/protocol'
import type { MemoryShard } from '@sealpost/queue/memory'
import type { MeshId, Millis, PeerNo } from '@sealpost/std'
import { HeardConsents } from './consents.ts'
import { poolStatementOf } from './pool.ts'
import type { World } from './world.ts'

const unused = (): never => {
  throw new Error('no peer of a world asks for this')
}

export abstract class MemberLife {
  abstract readonly engine: Engine
  abstract readonly statements: MemoryShard
  protected abstract readonly world: World
  protected readonly heard = new HeardConsents()

  protected abstract step(decide: () => void): void
  protected abstract ask<T>(name: string, apply: () => T, answered?: (answer: T) => void, failed?: () => void): void
  protected abstract after(delayMs: Millis, run: () => void): void

  lookup(no: SocketId, meshId: MeshId, lookup: FrameOf<'lookup'>): void {
    this.ask(
      'lookup',
      () => this.statements.findBindings(meshId, lookup.peers),
      (bindings) => this.engine.persons.found(no, lookup, bindings),
    )
  }

  /** The meshes of a world are as they were seeded: nobody comes by an invite. */
  enrol(no: SocketId): void {
    this.after(0, () => this.step(() => this.engine.enrolled(no, { status: 'invite_refused' })))
  }
  revoke(no: SocketId, _asker: { meshId: MeshId; peer: PeerNo }, revoke: FrameOf<'revoke'>): void {
    const { revocations, store, oracle } = this.world
    this.ask(
      'revoke',
      () => revocations.commit(store, oracle),
      (ended) => {
        revocations.heardBy(this)
        this.revoked(no, revoke, ended)
      },
    )
  }
  protected revoked(no: SocketId, revoke: FrameOf<'revoke'>, ended: readonly RevokedMember[]): void {
    this.engine.revoked(no, revoke, ended)
  }

  readonly setPool = unused
  listPools(no: SocketId, meshId: MeshId, pools: FrameOf<'pools'>): void {
    const statements = [poolStatementOf(meshId, this.world.members)]
    this.ask(
      'pools',
      () => statements,
      () => this.engine.pools.listed(no, pools, { statements, isLast: true }),
    )
  }
  findPool(no: SocketId, meshId: MeshId, join: FrameOf<'joinPool'>): void {
    this.ask(
      'join',
      () => this.statements.pools.find(meshId, [join.pool])[0] ?? null,
      (pool) => this.engine.pools.found(no, join, pool),
    )
  }
  giveBack(gifts: readonly GiveBack[]): void {
    this.ask(
      'give',
      () => this.statements.pools.giveBack(gifts),
      () => this.engine.pools.gaveBack(gifts),
    )
  }
  consent(no: SocketId, asker: Asker, consent: FrameOf<'consent'>): void {
    const { consents, store } = this.world
    this.ask(
      'consent',
      () => consents.change(store, asker, consent),
      (answer) => {
        this.heard.heardOf(asker.meshId, asker.peer, answer.consent)
        this.engine.owners.consented(no, asker, consent, answer)
      },
    )
  }
  bind(no: SocketId, asker: Asker, bind: FrameOf<'bind'>): void {
    const { turns, store } = this.world
    this.ask(
      'bind',
      () => turns.bind(store, { meshId: asker.meshId, peer: asker.peerKey }, bind),
      (outcome) => this.engine.owners.bound(no, asker, bind, outcome),
    )
  }
  /** Its groups are as they were seeded. */
  readonly setGroup = unused
  listGroups(no: SocketId, meshId: MeshId, groups: FrameOf<'groups'>): void {
    this.ask(
      'groups',
      () => this.world.groupIn(meshId),
      (group) => this.engine.groups.listed(no, groups, { groups: [group], isLast: true }),
    )
  }
  /** Nor has anybody devices, or another identity. */
  readonly enrolDevice = unused
  readonly listDevices = unused
  readonly removeDevice = unused
  readonly succeed = unused
  lookupHistory(no: SocketId, meshId: MeshId, lookup: FrameOf<'lookupHistory'>): void {
    this.ask(
      'history',
      () => [
        ...this.statements.findBindings(meshId, [lookup.peer]),
        ...this.world.turns.formersOf({ meshId, peer: lookup.peer }),
      ],
      (bindings) => this.engine.owners.historyFound(no, lookup, bindings),
    )
  }

  listMembers(no: SocketId, meshId: MeshId, members: FrameOf<'members'>): void {
    this.ask(
      'members',
      () => this.world.store.keysAfter(meshId, members.after, ROSTER_MAX + 1),
      (keys) => {
        const page = keys.slice(0, ROSTER_MAX).map((peer) => ({ peer, name: '', role: 'member' as const }))
        this.engine.owners.listed(no, members, { members: page, isLast: keys.length <= ROSTER_MAX })
      },
    )
  }
}
