/** Who a message is from, in words: a pinned name, or one that the directory gives to a key seen for the first time. */
import { fingerprint } from '@sealpost/identity'
import type { PeerKey } from '@sealpost/sdk'
import { OperatingError } from '@sealpost/std'
import { isUsableName } from './contacts.ts'
import { abortable } from './deadline.ts'
import type { Output } from './output.ts'
import type { PeerSession } from './peer-session.ts'

const ANSWER_WITHIN_MS = 10_000

export class SenderNames {
  private readonly session: PeerSession
  private readonly output: Output
  /** Asked for once; the directory may have no name for them. */
  private readonly asked = new Set<PeerKey>()

  constructor(session: PeerSession, output: Output) {
    this.session = session
    this.output = output
  }

  /** Pins a new name. Without an answer, or with a name that is another one's, the key has to do. Never throws. */
  async learn(key: PeerKey): Promise<void> {
    const { contacts, peer } = this.session
    if (contacts.nameOf(key) !== undefined || this.asked.has(key)) return
    this.asked.add(key)
    try {
      const members = await abortable(peer.members(), AbortSignal.timeout(ANSWER_WITHIN_MS))
      const name = members.find((member) => member.peer === key)?.name
      if (name !== undefined && isUsableName(name)) await contacts.pin(name, key)
    } catch (error) {
      if (error instanceof OperatingError && error.code === 'key_changed')
        this.output.warn(
          `The directory calls ${fingerprint(key)} by the name of another peer that you know: see \`sealpost peers\`.`,
        )
    }
  }
}
