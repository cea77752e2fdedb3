/** What the tools work with: this profile, its session once it is ours, and the mail that came over it. */
import { OperatingError, type PeerKey } from '@sealpost/std'
import { abortable } from '../deadline.ts'
import { resolveRecipient, SenderNames } from '../members/peer-names.ts'
import { Contacts } from '../profile/contacts.ts'
import { openSession, type PeerSession, REACH_WITHIN_MS } from '../session/peer-session.ts'
import type { Shell } from '../shell.ts'
import { FileSaver } from './file-saver.ts'
import type { McpInbox, UnsettledMessage } from './mail.ts'

/** What an agent reads in a turn, and not all that waits: the rest stays with the broker. */
const CREDIT = 32

export interface ToolContextParts {
  readonly shell: Shell
  readonly mail: McpInbox
  /** The names and keys that may be written to; null: everybody. */
  readonly recipients: readonly string[] | null
  /** Where files are saved. */
  readonly folder: string
}

export class ToolContext {
  readonly shell: Shell
  readonly mail: McpInbox
  readonly files: FileSaver
  readonly #recipients: readonly string[] | null
  readonly #seated = Promise.withResolvers<PeerSession>()
  /** Senders the directory was asked about. */
  readonly #asked = new Set<string>()

  constructor({ shell, mail, recipients, folder }: ToolContextParts) {
    this.shell = shell
    this.mail = mail
    this.files = new FileSaver(shell, folder)
    this.#recipients = recipients
  }

  /**
   * Takes the profile's session, as soon as no other command holds it. Until then other tools than the inbox work: they
   * ask the command that does.
   * @throws what `openSession` throws, but for its being in use; the signal's reason
   */
  async takeSession(signal: AbortSignal, maxAgeSeconds?: number): Promise<PeerSession> {
    const session = await openSession({ ...this.shell, signal }, { credit: CREDIT, patience: signal, maxAgeSeconds })
    session.peer.onMessage((message) => this.mail.add(message))
    this.#seated.resolve(session)
    return session
  }

  /** @throws OperatingError `profile_in_use` while another command holds it */
  async session(signal: AbortSignal): Promise<PeerSession> {
    const patience = AbortSignal.timeout(REACH_WITHIN_MS)
    try {
      return await abortable(this.#seated.promise, AbortSignal.any([signal, patience]))
    } catch {
      throw new OperatingError(
        'profile_in_use',
        `Another command holds the session of the profile ${this.shell.profile.name} and gets its mail; this server takes over when it ends.`,
        { retryable: true },
      )
    }
  }

  /** The contacts as they are now, with the names of these senders in it where there are any. */
  async introduce(messages: readonly UnsettledMessage[], session: PeerSession): Promise<Contacts> {
    // Read anew: other commands pin names meanwhile.
    const contacts = await this.readContacts()
    const names = new SenderNames({ ...session, contacts }, this.shell.output)
    for (const sender of new Set(messages.map(({ message }) => message.user))) {
      if (this.#asked.has(sender)) continue
      this.#asked.add(sender)
      await names.learn(sender)
    }
    return contacts
  }

  readContacts(): Promise<Contacts> {
    return Contacts.read(this.shell.profile.contactsFile)
  }

  /** Who is meant by a name or a key. @throws OperatingError `recipient_not_allowed`, and as `resolveRecipient` */
  async recipientOf(word: string): Promise<PeerKey> {
    const key = await resolveRecipient(this.shell, word)
    await this.checkRecipient(key)
    return key
  }

  /** @throws OperatingError `recipient_not_allowed`, and as `resolveRecipient` */
  async checkRecipient(key: PeerKey): Promise<void> {
    if (this.#recipients === null) return
    for (const word of this.#recipients) if ((await this.#keyOf(word)) === key) return
    throw notAllowed(this.#recipients)
  }

  /** For words that the broker or anybody in the mesh can read. @throws OperatingError `recipient_not_allowed` */
  checkEverybody(): void {
    if (this.#recipients !== null) throw notAllowed(this.#recipients)
  }

  /** Null: nobody is called so yet. */
  async #keyOf(word: string): Promise<PeerKey | null> {
    try {
      return await resolveRecipient(this.shell, word)
    } catch (error) {
      if (error instanceof OperatingError && error.code === 'name_unknown') return null
      throw error
    }
  }
}

function notAllowed(recipients: readonly string[]): OperatingError {
  return new OperatingError(
    'recipient_not_allowed',
    `Nothing was said: this server may write to ${recipients.join(', ')} only.`,
  )
}
