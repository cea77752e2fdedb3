/**
 * Runs this browser's peer. Combines connection, outbox and archive into a `Chat`, which is rendered after each change.
 */
import {
  type Identity,
  type Membership,
  type Message,
  openPeer,
  type Peer,
  type PeerEvent,
  type PeerKey,
  type PeerStore,
  SealpostError,
} from '@sealpost/sdk'
import { openIndexedDbStore } from '@sealpost/sdk/indexeddb-store'
import { deleteDB } from 'idb'
import type { Archive, PeerRecord } from './archive.ts'
import {
  type Chat,
  type Fate,
  type LineFile,
  nameOf,
  orphanedLines,
  type ReceivedLine,
  receivedLine,
  type WrittenLine,
  waitingLine,
  withArrival,
  withLine,
  withMembers,
  withRead,
  wordsFor,
} from './chat.ts'
import { isLost, lineFileOf, OpenFiles, offer } from './open-files.ts'

export interface MailboxOptions {
  readonly archive: Archive
  readonly identity: Identity
  readonly membership: Membership
  readonly show: (chat: Chat, mailbox: Mailbox) => void
}

const OUTBOX = 'sealpost outbox'
/** The interval of member lists while the chat is visible, because the broker doesn't report who joins. */
const MEMBERS_EVERY_MS = 10_000
/** Errors after which the message stays in the outbox. */
const IS_KEPT: readonly string[] = ['kept_for_later', 'closed']

export class Mailbox {
  readonly #archive: Archive
  readonly #show: MailboxOptions['show']
  readonly #files: OpenFiles
  #chat: Chat
  #peer!: Peer

  private constructor({ archive, show, identity, membership }: MailboxOptions, chat: Chat) {
    const { url, brokerKey, meshId } = membership
    this.#files = new OpenFiles({ url, brokerKey, meshId, identity })
    this.#archive = archive
    this.#show = show
    this.#chat = chat
  }

  /**
   * Shows the archived lines, then connects. @throws SealpostError from the outbox: `store_in_use`, `store_failed`, …
   */
  static async open(options: MailboxOptions): Promise<Mailbox> {
    const { archive, identity, membership } = options
    const { url, brokerKey, meshId, name } = membership
    const me = { key: identity.signing.publicKey, name }
    const mailbox = new Mailbox(options, await chatOf(archive, me))
    const { store, outboxNos } = watched(await openIndexedDbStore(OUTBOX))
    const onEvent = (event: PeerEvent) => void mailbox.#heard(event)
    mailbox.#peer = await openPeer({ url, brokerKey, meshId, identity, store, onEvent })
    for (const line of orphanedLines(mailbox.#chat, outboxNos)) await mailbox.#decide(line, { name: 'unsure' })
    mailbox.#change((chat) => chat)
    mailbox.#listen()
    return mailbox
  }

  /** Opens a conversation; `null` for the list. */
  select(peer: PeerKey | null): void {
    this.#change((chat) => ({ ...chat, open: peer }))
    this.#read()
  }

  /** Sends a message and shows its line. With the fate `waiting`, it is in the outbox. */
  async say(to: PeerKey, text: string): Promise<void> {
    try {
      const draft = { kind: 'written', peer: to, text, atMs: Date.now(), fate: { name: 'keeping' } } as const
      const line = await this.#archive.written(draft)
      this.#change((chat) => withLine(chat, line))
      await this.#post(line)
    } catch {
      this.#change((chat) => ({ ...chat, notice: `This browser could not store a message: ${text}` }))
    }
  }

  /** Lets the browser save a line's file, and then settles the message. */
  async save(line: ReceivedLine): Promise<void> {
    const file = line.file!
    this.#change((chat) => withLine(chat, { ...line, file: { ...file, state: 'saving' } }))
    try {
      const blob = await this.#files.fetch(line)
      if (!blob) return this.#notSaved(line, 'Its message has not been delivered again yet. Try again in a moment.')
      offer(blob, file.name)
      await this.#file(line, { ...file, state: 'saved' })
      this.#files.settle(line)
    } catch (error) {
      if (!(error instanceof SealpostError && isLost(error.code))) return this.#notSaved(line, wordsFor(error))
      await this.#file(line, { ...file, state: 'lost' })
      this.#files.reject(line, error.code)
    }
  }

  closeNotice(): void {
    this.#change((chat) => ({ ...chat, notice: null }))
  }

  /** Deletes the keys and messages. Only an admin can end the membership. */
  async forget(): Promise<void> {
    await this.#peer.close()
    await this.#archive.destroy()
    await deleteDB(OUTBOX)
    location.reload()
  }

  #listen(): void {
    this.#peer.onMessage(async (message) => {
      const file = lineFileOf(message)
      await this.#receive(message, file)
      if (file && (await this.#isUnsaved(message, file))) await this.#files.hold(message)
    })
    document.addEventListener('visibilitychange', () => {
      this.#read()
      void this.#askMembers()
    })
    setInterval(() => void this.#askMembers(), MEMBERS_EVERY_MS)
  }

  async #receive(message: Message, file: LineFile | null): Promise<void> {
    const { sender: peer, envelopeId, sentAtMs: atMs } = message
    const draft = { kind: 'received', peer, envelopeId, atMs, text: message.text(), ...(file && { file }) } as const
    const line = await this.#archive.received(draft)
    if (!line) return
    const isStranger = !this.#chat.peers.some((each) => each.peer === peer)
    this.#change((chat) => withArrival(chat, line))
    this.#read()
    if (isStranger) void this.#askMembers()
  }

  /** An unavailable file may be available again, because its message was pushed again. */
  async #isUnsaved({ sender, envelopeId }: Message, file: LineFile): Promise<boolean> {
    const line = receivedLine(this.#chat, sender, envelopeId)
    if (line?.file?.state === 'lost') await this.#file(line, file)
    return line?.file?.state !== 'saved'
  }

  async #file(line: ReceivedLine, file: LineFile): Promise<void> {
    const filed = await this.#archive.filed(line, file)
    this.#change((chat) => withLine(chat, filed))
  }

  #notSaved(line: ReceivedLine, why: string): void {
    this.#change((chat) => ({ ...withLine(chat, line), notice: `The file was not saved. ${why}` }))
  }

  async #heard(event: PeerEvent): Promise<void> {
    switch (event.type) {
      case 'connected':
        this.#change((chat) => ({ ...chat, link: { name: 'online' } }))
        return this.#askMembers()
      case 'disconnected':
        return this.#change((chat) => ({ ...chat, link: { name: 'away' } }))
      case 'closed':
        return this.#ended(event.error)
      case 'sent':
        return this.#answered(event.outboxNo, { name: 'stored' })
      case 'send_failed':
        return this.#answered(event.outboxNo, fateOf(event.error))
      default:
        return this.#warn(event)
    }
  }

  #warn(event: PeerEvent): void {
    const notice = noticeOf(event, this.#chat)
    if (notice) this.#change((chat) => ({ ...chat, notice }))
  }

  #ended(error: SealpostError | null): void {
    if (error) this.#change((chat) => ({ ...chat, link: { name: 'over', reason: wordsFor(error) } }))
  }

  async #answered(outboxNo: number, fate: Fate): Promise<void> {
    const line = waitingLine(this.#chat, outboxNo)
    if (line) await this.#decide(line, fate)
  }

  async #post(line: WrittenLine): Promise<void> {
    try {
      const { outboxNo, receipt } = await this.#peer.enqueue(line.peer, line.text)
      await this.#decide(line, { name: 'waiting', outboxNo })
      await receipt
      await this.#decide(line, { name: 'stored' })
    } catch (error) {
      if (!(error instanceof SealpostError)) throw error
      if (!IS_KEPT.includes(error.code)) await this.#decide(line, fateOf(error))
    }
  }

  async #decide(line: WrittenLine, fate: Fate): Promise<void> {
    const decided = await this.#archive.decided(line, fate)
    this.#change((chat) => withLine(chat, decided))
  }

  async #askMembers(): Promise<void> {
    if (!this.#peer.isOnline || document.visibilityState === 'hidden') return
    try {
      const members = await this.#peer.members()
      this.#change((chat) => withMembers(chat, members))
      await this.#keepPeers()
    } catch (error) {
      if (!(error instanceof SealpostError)) throw error // offline; the next session repeats the query
    }
  }

  #read(): void {
    const { open } = this.#chat
    if (open === null || document.visibilityState === 'hidden') return
    this.#change((chat) => withRead(chat, open))
    void this.#keepPeers()
  }

  async #keepPeers(): Promise<void> {
    const { peers, readNos } = this.#chat
    await this.#archive.keepPeers(peers.map(({ peer, name }) => ({ peer, name, readNo: readNos.get(peer) ?? 0 })))
  }

  #change(change: (chat: Chat) => Chat): void {
    this.#chat = change(this.#chat)
    this.#show(this.#chat, this)
  }
}

async function chatOf(archive: Archive, me: Chat['me']): Promise<Chat> {
  const { lines, peers } = await archive.load()
  const known = (record: PeerRecord) => ({ ...record, isMember: true })
  const empty: Chat = {
    me,
    link: { name: 'connecting' },
    peers: peers.map(known),
    lines: new Map(),
    readNos: new Map(peers.map(({ peer, readNo }) => [peer, readNo])),
    open: null,
    heard: '',
    notice: null,
  }
  return { ...empty, lines: Map.groupBy(lines, ({ peer }) => peer) }
}

/** Wraps the store to report stored posts once they are loaded. */
function watched(store: PeerStore): { store: PeerStore; outboxNos: ReadonlySet<number> } {
  const outboxNos = new Set<number>()
  const load = async () => {
    const records = await store.load()
    for (const record of records) if ('outboxNo' in record) outboxNos.add(record.outboxNo)
    return records
  }
  return { store: { load, write: (changes) => store.write(changes), close: () => store.close() }, outboxNos }
}

const fateOf = ({ code }: SealpostError): Fate =>
  code === 'maybe_sent' ? { name: 'unsure' } : { name: 'failed', code }

function noticeOf(event: PeerEvent, chat: Chat): string | null {
  switch (event.type) {
    case 'gap':
      return `Messages from ${nameOf(chat, event.sender)} are missing.`
    case 'forked':
      return `Two messages from ${nameOf(chat, event.sender)} have the same number. Someone else may have a key.`
    case 'tamper':
      return `A message that claims to be from ${nameOf(chat, event.sender)} is forged or damaged. It is not shown.`
    case 'key_changed':
      return `${nameOf(chat, event.peer)} has a new box key, signed with the same identity key.`
    case 'key_refused':
      return `The broker returned no valid key for ${nameOf(chat, event.peer)}.`
    default:
      return null
  }
}
