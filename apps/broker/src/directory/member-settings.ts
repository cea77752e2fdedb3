/**
 * A member's own settings: its consent and its box key. This class checks signatures, in the same queue as those of
 * handshakes; database statements decide the result (`packages/store/src/members/consent.ts`, `key-bindings.ts`).
 */
import type { ConsentReply, Requester } from '@sealpost/core'
import { checkKeyBinding } from '@sealpost/identity'
import type { Database } from '@sealpost/pg'
import type { FrameOf, KeyBindingEntry } from '@sealpost/protocol'
import type { MeshId } from '@sealpost/std'
import { BOX_EPOCH_MAX, changeConsent, findConsent, findKeyHistory, replaceBinding } from '@sealpost/store'
import type { Authenticator } from './authenticator.ts'

export class MemberSettings {
  private readonly db: Database
  private readonly authenticator: Authenticator

  constructor(db: Database, authenticator: Authenticator) {
    this.db = db
    this.authenticator = authenticator
  }

  /**
   * Applies the changes, then reads the whole consent. `null`: the requester is no longer a member. @throws
   * OperatingError
   */
  async consent(requester: Requester, { policy, changes }: FrameOf<'consent'>): Promise<ConsentReply | null> {
    const isAsking = policy === 'keep' && changes.length === 0
    const change = { policy: policy === 'keep' ? null : policy, verdicts: changes }
    const owner = { meshId: requester.meshId, peer: requester.user } // a change by one device applies to all
    const { isDone, unknown } = isAsking ? { isDone: true, unknown: [] } : await changeConsent(this.db, owner, change)
    const found = await findConsent(this.db, owner)
    if (!found) return null
    const { policy: standing, version, named } = found
    const isOpen = standing === 'open'
    return {
      outcome: isDone ? 'done' : 'too_many',
      peers: named.map(({ peerKey, isBlocked }) => ({ peer: peerKey, verdict: isBlocked ? 'blocked' : 'allowed' })),
      unknown,
      consent: {
        policy: standing,
        named: named.filter(({ isBlocked }) => isBlocked === isOpen).map(({ peer }) => peer),
        version,
      },
    }
  }

  async bind(requester: Requester, bind: FrameOf<'bind'>): Promise<FrameOf<'bound'>['outcome'] | null> {
    const verdict = await this.authenticator.inTurn(() => this.check(requester, bind))
    if (verdict === null || verdict === 'bad_binding') return verdict
    return replaceBinding(this.db, requester, bind)
  }

  history(meshId: MeshId, { peer }: FrameOf<'lookupHistory'>): Promise<KeyBindingEntry[]> {
    return findKeyHistory(this.db, meshId, peer)
  }

  private check({ meshId, peerKey }: Requester, bind: FrameOf<'bind'>): 'ok' | 'bad_binding' {
    const verdict = checkKeyBinding({ ...bind, meshId, peerKey }, { meshId, peerKey, nowMs: Date.now() })
    return verdict === 'ok' && bind.boxEpoch <= BOX_EPOCH_MAX ? 'ok' : 'bad_binding'
  }
}
