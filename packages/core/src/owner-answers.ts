/**
 * What is answered to members: who the others are, what of theirs was lost, whom they take mail from and their box keys,
 * and who else hears of it.
 */
import type { Consent, FrameOf, KeyBindingEntry, Lost, ServerFrame, SessionRef } from '@sealpost/protocol'
import type { PeerKey } from '@sealpost/std'
import type { Context } from './context.ts'
import type { Asker, SocketId } from './effects.ts'
import { KeyNews } from './key-news.ts'
import type { Mesh } from './roster.ts'
import type { LiveSession } from './session.ts'

/** What became of a change of consent, and how it stands now. */
export interface ConsentAnswer extends Pick<FrameOf<'consented'>, 'outcome' | 'peers' | 'unknown'> {
  readonly consent: Consent
}

export type MemberPage = Pick<FrameOf<'roster'>, 'members' | 'isLast'>

export class OwnerAnswers {
  private readonly context: Context
  private readonly live: (socket: SocketId) => LiveSession | null
  private readonly keyNews: KeyNews

  constructor(context: Context, live: (socket: SocketId) => LiveSession | null) {
    this.context = context
    this.live = live
    this.keyNews = new KeyNews(context)
  }

  /** What the peer's consent is from now on, for the peer with its keys, for routing with its numbers. */
  consented(
    socket: SocketId,
    asker: Asker,
    { ref, policy, changes }: FrameOf<'consent'>,
    { consent, ...answer }: ConsentAnswer,
  ): void {
    const { meshId, person } = asker
    this.context.roster.find(meshId)?.consented(person, consent)
    const isChanged = policy !== 'keep' || changes.length > 0
    if (isChanged) this.context.effects.hint({ type: 'staleConsent', meshId, person })
    this.answer(socket, { type: 'consented', ref, policy: consent.policy, ...answer })
  }

  /** Those who know the former key hear of it. */
  bound(socket: SocketId, asker: Asker, { ref }: FrameOf<'bind'>, outcome: FrameOf<'bound'>['outcome']): void {
    this.answer(socket, { type: 'bound', ref, outcome })
    if (outcome !== 'done') return
    const { meshId, peerKey: peer } = asker
    this.context.effects.hint({ type: 'staleKey', meshId, peer })
    const mesh = this.context.roster.find(meshId)
    if (mesh) this.keyChanged(mesh, peer)
    this.context.flush()
  }

  keyChanged(mesh: Mesh, peerKey: PeerKey): void {
    this.keyNews.changed(mesh, peerKey)
  }

  historyFound(socket: SocketId, { ref }: FrameOf<'lookupHistory'>, bindings: readonly KeyBindingEntry[]): void {
    this.answer(socket, { type: 'keyHistory', ref, bindings: [...bindings] })
  }

  listed(socket: SocketId, { ref }: FrameOf<'members'>, page: MemberPage): void {
    this.answer(socket, { type: 'roster', ref, ...page })
  }

  /** What the peer of this session lost, the oldest first; `isAll`: there is no more of it. */
  lost(socket: SocketId, session: SessionRef, lost: readonly Lost[], isAll: boolean): void {
    if (!this.live(socket)) return
    this.answer(socket, { type: 'recovered', lost: [...lost], isAll })
    const ids = lost.map(({ id }) => id)
    if (ids.length > 0) this.context.effects.toldLost(session, ids)
  }

  private answer(socket: SocketId, frame: ServerFrame): void {
    const live = this.live(socket)
    if (live) this.context.send(live, [frame])
  }
}
