/**
 * What is signed about persons, handed on: which devices they have or removed, and which key followed which. Nobody has
 * to ask for it: it goes before the keys that somebody asked for, and as news to those who asked in this session.
 */
import type { FrameOf, KeyBindingEntry, ServerFrame } from '@sealpost/protocol'
import { assert, type MeshId, type PeerKey } from '@sealpost/std'
import type { Context } from './context.ts'
import type { Asker, SocketId } from './effects.ts'
import type { RevokedMember } from './newcomers.ts'
import { askerOf } from './questions.ts'
import type { LiveSession } from './session.ts'

/** Each as it was signed, and checked when it came. */
export interface PersonRecords {
  readonly statements: readonly Uint8Array[]
  readonly removals: readonly Uint8Array[]
  readonly successions: readonly Uint8Array[]
}

export const NOBODY: PersonRecords = { statements: [], removals: [], successions: [] }

/** A device that has just joined, and the person that vouches for it. */
export interface NewDevice {
  readonly meshId: MeshId
  readonly person: PeerKey
  readonly statement: Uint8Array
}

export type RemovalAnswer =
  | { readonly outcome: 'done'; readonly removed: RevokedMember; readonly removal: Uint8Array }
  | { readonly outcome: Exclude<FrameOf<'deviceRemoved'>['outcome'], 'done'> }

export type SuccessionAnswer =
  | { readonly outcome: 'done'; readonly successor: PeerKey; readonly statement: Uint8Array }
  | { readonly outcome: Exclude<FrameOf<'succeeded'>['outcome'], 'done'> }

type Question = FrameOf<'devices'> | FrameOf<'removeDevice'> | FrameOf<'succeed'>

export class Persons {
  /** Ends a member's sessions: set by the engine, which owns them. */
  expel: (member: RevokedMember) => void = () => assert(false, 'the engine sets `expel`')
  private readonly context: Context
  private readonly live: (socket: SocketId) => LiveSession | null

  constructor(context: Context, live: (socket: SocketId) => LiveSession | null) {
    this.context = context
    this.live = live
  }

  ask(live: LiveSession, frame: Question): void {
    const { effects } = this.context
    if (frame.type === 'removeDevice') return effects.removeDevice(live.socket, askerOf(live), frame)
    if (frame.type === 'succeed') return effects.succeed(live.socket, askerOf(live), frame)
    live.asks(frame.peers)
    effects.listDevices(live.socket, live.mesh.meshId, frame)
  }

  /** The answer to a `lookup`. */
  found(
    socket: SocketId,
    { ref, peers }: FrameOf<'lookup'>,
    bindings: readonly KeyBindingEntry[],
    persons: PersonRecords = NOBODY,
  ): void {
    const live = this.live(socket)
    if (!live) return
    this.introduce(live, persons)
    const known = new Set(bindings.map(({ peer }) => peer))
    const unknown = peers.filter((peer) => !known.has(peer))
    this.context.send(live, [{ type: 'directory', ref, bindings: [...bindings], unknown }])
  }

  listed(socket: SocketId, { ref }: FrameOf<'devices'>, persons: PersonRecords): void {
    const live = this.live(socket)
    if (!live) return
    this.introduce(live, { ...NOBODY, successions: persons.successions })
    const { statements, removals } = persons
    this.context.send(live, [{ type: 'deviceList', ref, statements: [...statements], removals: [...removals] }])
  }

  joined({ meshId, person, statement }: NewDevice): void {
    this.tell({ meshId, keys: [person] }, { type: 'deviceList', ref: 0, statements: [statement], removals: [] })
  }

  /** Also when the asker left meanwhile. */
  removed(socket: SocketId, asker: Asker, { ref }: FrameOf<'removeDevice'>, answer: RemovalAnswer): void {
    this.answer(socket, { type: 'deviceRemoved', ref, outcome: answer.outcome })
    if (answer.outcome !== 'done') return
    const news: FrameOf<'deviceList'> = { type: 'deviceList', ref: 0, statements: [], removals: [answer.removal] }
    this.tell({ meshId: asker.meshId, keys: [asker.peerKey, answer.removed.peerKey] }, news)
    this.expel(answer.removed)
    this.context.flush()
  }

  /** The mail that waits, and what else belongs to the member, is its successor's: it comes back with the new key. */
  succeeded(socket: SocketId, asker: Asker, { ref }: FrameOf<'succeed'>, answer: SuccessionAnswer): void {
    this.answer(socket, { type: 'succeeded', ref, outcome: answer.outcome })
    if (answer.outcome !== 'done') return
    const { meshId, peerKey, peer } = asker
    this.tell({ meshId, keys: [peerKey] }, { type: 'successions', statements: [answer.statement] })
    const mesh = this.context.roster.find(meshId)
    const former = mesh?.byNo.get(peer)
    if (former?.live) this.context.end(former.live, 'superseded')
    if (former) mesh!.forget(former)
    this.context.effects.hint({ type: 'revoked', meshId, peer })
    mesh?.pools.turned(peer)
    this.context.flush()
  }

  /** Those who asked for one of these keys, or watch; and the persons themselves. */
  private tell({ meshId, keys }: { meshId: MeshId; keys: readonly PeerKey[] }, news: ServerFrame): void {
    const mesh = this.context.roster.find(meshId)
    for (const { live, peerKey } of mesh?.byNo.values() ?? []) {
      if (!live || !(keys.includes(peerKey) || mesh!.watchers.has(live) || keys.some((key) => live.hasAskedAbout(key))))
        continue
      this.context.send(live, [news])
    }
  }

  /** Before keys are told, what else is known of whose they are. */
  private introduce(live: LiveSession, { statements, removals, successions }: PersonRecords): void {
    if (successions.length > 0) this.context.send(live, [{ type: 'successions', statements: [...successions] }])
    if (statements.length + removals.length === 0) return
    this.context.send(live, [{ type: 'deviceList', ref: 0, statements: [...statements], removals: [...removals] }])
  }

  private answer(socket: SocketId, frame: ServerFrame): void {
    const live = this.live(socket)
    if (live) this.context.send(live, [frame])
  }
}
