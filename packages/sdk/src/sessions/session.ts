/**
 * Opens sessions, for Node, Bun and Deno: `@sealpost/sdk/sessions`. A session is an addressable instance of a member
 * (docs/adr/0013-sessions.md). Several processes of one profile can each open one.
 */
import type { BoxKeys, Identity } from '@sealpost/identity'
import type { PeerKey, PoolId } from '@sealpost/std'
import { openPeer } from '../client.ts'
import type { SealpostError } from '../errors.ts'
import type { MessageHandler } from '../inbox/dispatcher.ts'
import type { Message } from '../inbox/message.ts'
import type { KeyEpochs } from '../keys/key-epochs.ts'
import { type ConnectOptions, type Peer, portsOf } from '../peer.ts'
import type { PeerEvent } from '../ports.ts'
import type { Status } from '../presence/presence-client.ts'
import { confirmationsOf } from '../sent/confirmations.ts'
import { sentLogOf } from '../sent/sent-log.ts'
import { openFileStore } from '../stores/file/file-store.ts'
import type { PeerStore } from '../stores/store.ts'
import { Incoming } from './incoming.ts'
import { type MailboxHostOptions, MEMBER, startMailboxHost } from './mailbox-host.ts'
import { socketPathOf } from './mailbox-link.ts'
import { MemberMailbox } from './member-mailbox.ts'
import { OutcomeStore } from './outcome-store.ts'
import {
  type CertifyOptions,
  endedByBroker,
  existingKeys,
  fetchCertificate,
  storeOf,
  validCertificate,
} from './session-keys.ts'
import { type CertifiedSlot, type KeyedSlot, openSlot, releaseSlot, slotFolderOf } from './session-slots.ts'

export {
  forgetSession,
  forgetSessionRatchets,
  type LocalSession,
  localSessions,
  mailboxRecords,
  ratchetedPeersIn,
  sessionIdentity,
} from './local-sessions.ts'
export { type SessionLog, type SessionLogOptions, sessionLogs } from './session-logs.ts'

/** The member whose session is opened: a user or a device. */
export interface SessionMember {
  readonly identity: Identity
  readonly formerBoxKeys?: readonly BoxKeys[]
  readonly formerKeys?: readonly PeerKey[]
  /** Default: they are saved with the member's mail. */
  readonly keyEpochs?: KeyEpochs
}

type PlaceKey = 'url' | 'brokerKey' | 'meshId' | 'window' | 'maxAgeSeconds' | 'padding' | 'secrecy' | 'webSocket'
export interface SessionOptions extends Pick<ConnectOptions, PlaceKey> {
  /**
   * The folder of the profile, which must exist. All sessions of the member on this machine use the same folder. It
   * contains the member's mail (`messages`) and the folders of the sessions.
   */
  readonly folder: string
  readonly member: SessionMember
  /**
   * Reads the member's keys again, each time this session becomes the host. Another process may have rotated them.
   * Default: `member`.
   */
  readonly readMember?: () => Promise<SessionMember>
  /** The label of a named session, which keeps its address and mail across restarts. Default: an unnamed session. */
  readonly as?: string
  /** The first part of an unnamed session's label, which a number follows. Default: the name of this host. */
  readonly baseLabel?: string
  /**
   * The maximum number of unsettled messages of the session, and also the maximum number of unsettled messages of the
   * member that the session is given at a time. Default: 32.
   */
  readonly credit?: number
  /**
   * Whether an unread message of the member goes to a session that holds none as soon as this session holds others, for
   * an application that works on one message at a time. Default: after 30 seconds, like that of any session.
   */
  readonly sharesUnread?: boolean
  /**
   * Which messages the session is given. `pools`: only those of the pools that it takes. Its own mail then waits until
   * another process opens the session. Default: `all`.
   */
  readonly takes?: 'all' | 'pools'
  /** Encrypts the key file of a new session, and decrypts that of an existing one. Default: key files are unencrypted. */
  readonly passphrase?: string
  /**
   * When a message of the member counts as read. `handed_out`: when a handler or a loop takes it. `marked`: when the
   * application calls `markRead`. An unread message may be given to another session after 30 seconds. Default:
   * `handed_out`.
   */
  readonly readWhen?: 'handed_out' | 'marked'
  /** Replaces the store of the session's own mail by one that uses it. */
  readonly wrapStore?: (store: PeerStore) => PeerStore
  /** Replaces the store of the member's mail, each time this session becomes the host. */
  readonly wrapMemberStore?: (store: PeerStore) => PeerStore
  /** Called when a message of the member that was not read is given to another session. */
  readonly onWithdrawn?: (message: Message) => void
  /** Receives the events of the session's own peer. */
  readonly onEvent?: (event: PeerEvent) => void
  /** Receives the events of the member's peer while this session is the host. */
  readonly onMemberEvent?: (event: PeerEvent) => void
  /**
   * Called when this session becomes the host. It may return a function, which is called before the session stops to be
   * the host. `memberPeer` has the connection of the member's key. Don't close it or receive its messages.
   */
  readonly onHost?: (memberPeer: Peer) => HostEnd | undefined | Promise<HostEnd | undefined>
  /**
   * Called in the host when a session with `readWhen: 'marked'` has read a message of the member, for example to confirm
   * that with `memberPeer`.
   */
  readonly onMemberRead?: (message: Message) => void
  /** Called when this session can't be the host, or no longer, because of an error. It tries again. */
  readonly onHostFailed?: (error: unknown) => void
}

/** Called before a session stops to be the host. */
export type HostEnd = () => unknown

/**
 * Opens a session. The first start of a label enrols the session at the broker. Later starts succeed without a broker.
 * @throws SealpostError `session_in_use`, `session_foreign`, `certificate_expired`, `name_taken`, `label_malformed`,
 * `too_many_devices`, `folder_path_too_long`, and the errors of `joinAsDevice` and `openPeer`; OperatingError `passphrase_wrong`, `key_file_locked`, …
 * @example await using session = await openSession({ ...place, folder: 'profile', member: { identity } })
 */
export async function openSession(options: SessionOptions): Promise<MemberSession> {
  const path = socketPathOf(options.folder)
  const { identity } = options.member
  const slot = await openSlot(options)
  try {
    const incoming = new Incoming(options)
    const onEvent = (event: PeerEvent) => options.onEvent?.(event)
    const { wrapStore = (store) => store } = options
    const store = new OutcomeStore(wrapStore(await openFileStore(storeOf(slot))))
    const peer = await openSlotPeer({ slot, store, onEvent }, options)
    incoming.begin(peer, memberMailboxOf({ slot, path, peer, incoming, options }))
    return new MemberSession({ slot, peer, store, incoming, options, member: identity.signing.publicKey })
  } catch (error) {
    await releaseSlot(slot)
    throw error
  }
}

/** The member's mail waits at the broker beyond this number of messages. */
const MEMBER_CREDIT = 256
const SESSION_CREDIT = 32
/** The messages stay with the broker. */
const NO_CREDIT = { credit: 0 }

const isForPools = ({ takes }: SessionOptions): boolean => takes === 'pools'

interface SlotPeerParts {
  readonly slot: KeyedSlot
  readonly store: PeerStore
  readonly onEvent?: (event: PeerEvent) => void
}

/** Opens the peer of a session, for the session or for the host. */
function openSlotPeer({ slot, store, onEvent }: SlotPeerParts, options: SessionOptions): Promise<Peer> {
  const { identity, formerBoxKeys } = slot.keys
  const { credit = SESSION_CREDIT } = isForPools(options) ? NO_CREDIT : options
  return openPeer({ ...placeOf(options), identity, formerBoxKeys, credit, store, ...(onEvent && { onEvent }) })
}

/** Opens the peer of a session whose process is gone. What becomes of its messages is recorded in its own store. */
async function openIdlePeer(parts: SlotPeerParts, options: SessionOptions): Promise<Peer> {
  await validCertificate(parts.slot, parts.slot.keys, await certifyOptionsOf(options))
  const peer = await openSlotPeer(parts, options)
  sentLogOf(peer)
  confirmationsOf(peer)
  return peer
}

const currentMember = async ({ member, readMember }: SessionOptions): Promise<SessionMember> =>
  (await readMember?.()) ?? member

async function certifyOptionsOf(options: SessionOptions): Promise<CertifyOptions> {
  return { ...options, member: await currentMember(options) }
}

function placeOf(options: SessionOptions) {
  const { url, brokerKey, meshId, window, maxAgeSeconds, padding = false, secrecy, webSocket } = options
  return {
    ...{ url, brokerKey, meshId, padding },
    ...(window !== undefined && { window }),
    ...(maxAgeSeconds !== undefined && { maxAgeSeconds }),
    ...(secrecy && { secrecy }),
    ...(webSocket && { webSocket }),
  }
}

interface MailboxParts {
  readonly slot: CertifiedSlot
  readonly path: string
  readonly peer: Peer
  readonly incoming: Incoming
  readonly options: SessionOptions
}

function memberMailboxOf({ slot, path, peer, incoming, options }: MailboxParts): MemberMailbox {
  const { tell } = portsOf(peer)
  return new MemberMailbox({
    isForPools: isForPools(options),
    sharesUnread: options.sharesUnread ?? false,
    ...{ path, label: slot.name, credit: options.credit ?? SESSION_CREDIT, marksRead: options.readWhen === 'marked' },
    startHost: () => startMailboxHost(hostOptionsOf(options)),
    deliver: (message) => incoming.deliver(message),
    withdrawn: (message) => {
      incoming.finished(message)
      options.onWithdrawn?.(message)
    },
    finished: (message) => incoming.finished(message),
    post: (post) => tell((engine) => engine.enqueue(post)),
    hostFailed: (error) => options.onHostFailed?.(error),
  })
}

function hostOptionsOf(options: SessionOptions): MailboxHostOptions {
  const { folder, passphrase, onMemberEvent, onHost } = options
  const { credit } = isForPools(options) ? NO_CREDIT : { credit: MEMBER_CREDIT }
  return {
    isForPools: isForPools(options),
    folder,
    passphrase,
    openSlotPeer: (slot, store) => openIdlePeer({ slot, store }, options),
    slotRevoked: async (slot, error) => endedByBroker(slot, error, await certifyOptionsOf(options)),
    openMember: async (store) => {
      const member = await currentMember(options)
      const wrapped = options.wrapMemberStore?.(store) ?? store
      const terms = { credit, store: wrapped, onEvent: (event: PeerEvent) => onMemberEvent?.(event) }
      return openPeer({ ...placeOf(options), ...member, ...terms })
    },
    begun: async (memberPeer) => onHost?.(memberPeer),
    read: (message) => options.onMemberRead?.(message),
  }
}

/** Returns the identity of the mailbox of the member, or of a session whose process is gone. */
async function identityOf(mailbox: string, options: SessionOptions): Promise<Identity> {
  const { identity } = await currentMember(options)
  if (mailbox === MEMBER) return identity
  const keys = await existingKeys({ folder: slotFolderOf(options.folder, mailbox) }, options)
  return keys?.identity ?? identity
}

interface SessionParts {
  readonly slot: CertifiedSlot
  readonly peer: Peer
  readonly store: OutcomeStore
  readonly incoming: Incoming
  readonly options: SessionOptions
  readonly member: PeerKey
}

export class MemberSession implements AsyncDisposable, AsyncIterable<Message> {
  /** The session's name is the name of the user, `/` and this label. */
  readonly label: string
  readonly isNamed: boolean
  /** The member's key. Messages to it are distributed among its sessions. */
  readonly member: PeerKey
  /** The session's own peer. Send with it. Receive with the session instead. */
  readonly peer: Peer
  /** Resolves when the session has ended permanently: with the error that ended it, or null after `close`. */
  readonly closed: Promise<SealpostError | null>
  readonly #slot: CertifiedSlot
  readonly #store: OutcomeStore
  readonly #incoming: Incoming
  readonly #options: SessionOptions
  #closing: Promise<void> | null = null
  #failure: SealpostError | null = null

  /** Use `openSession`. @internal */
  constructor({ slot, peer, store, incoming, options, member }: SessionParts) {
    this.label = slot.label
    this.isNamed = slot.isNamed
    this.member = member
    this.peer = peer
    this.#slot = slot
    this.#store = store
    this.#incoming = incoming
    this.#options = options
    this.closed = peer.closed.then(() => this.#ended())
    if (slot.certificate === null) void this.#fetchCertificate()
  }

  /** The session's own key. */
  get key(): PeerKey {
    return this.peer.key
  }

  /** The member's peer while this session is the host, which distributes the member's messages; otherwise null. */
  get memberPeer(): Peer | null {
    return this.#incoming.mailbox.host?.peer ?? null
  }

  /** Whether this session is the host. */
  get isHost(): boolean {
    return this.memberPeer !== null
  }

  /**
   * Returns whether the message was sent to the member instead of to this session.
   * @example if (session.isForMember(message)) console.log('for any session')
   */
  isForMember(message: Message): boolean {
    return this.#incoming.mailbox.has(message)
  }

  /**
   * Returns the identity to which the message was sent, with which its file is fetched: that of this session, of the
   * member, or of a session whose process is gone.
   * @example const files = new Attachments({ ...place, identity: await session.identityFor(message) })
   */
  async identityFor(message: Message): Promise<Identity> {
    const mailbox = this.#incoming.mailbox.mailboxOf(message)
    if (mailbox === null) return this.#slot.keys.identity
    return identityOf(mailbox, this.#options)
  }

  /**
   * Calls the handler for each message to the session, and for each message of the member that the session is given.
   * Otherwise like `onMessage` of a peer. A reply is sent by the session.
   * @example const stop = session.onMessage((message) => console.log(message.text()))
   */
  onMessage(handler: MessageHandler): () => void {
    return this.#incoming.use(handler)
  }

  /**
   * Yields the messages that `onMessage` would handle, like the loop over a peer's messages.
   * @example for await (const message of session) console.log(message.text())
   */
  [Symbol.asyncIterator](): AsyncIterator<Message, undefined> {
    return this.#incoming.iterate()
  }

  /**
   * Marks a message as read, with `readWhen: 'marked'`. A message of the member that is read stays with this session.
   * @example session.markRead(message)
   */
  markRead(message: Message): void {
    this.#incoming.markRead(message)
  }

  /**
   * Resolves when the outcomes of the messages that this session has settled or rejected so far are stored. From then
   * on, no session is given these messages again, even if every process of the profile is killed. Resolves with false
   * if another session has one of the messages, because this process was suspended for too long.
   * @example await session.outcomesStored()
   */
  async outcomesStored(): Promise<boolean> {
    const [isStored] = await Promise.all([this.#incoming.mailbox.outcomesStored(), this.#store.written()])
    return isStored
  }

  /**
   * Takes the messages of these pools, of which the member is a member, from now on, and of no others. Only the member
   * can join a pool: call `join` with `memberPeer`, in whichever process is the host.
   * @example session.takePools([pool.id])
   */
  takePools(pools: readonly PoolId[]): void {
    this.#incoming.mailbox.takePools(pools)
  }

  /**
   * Takes the member's later messages of a thread, for example the replies to a request that `memberPeer` sends in it.
   * @example session.takeThread(message.thread!)
   */
  takeThread(thread: string): void {
    this.#incoming.mailbox.takeThread(thread)
  }

  /** The status of the session. */
  get status(): Status {
    return this.#incoming.mailbox.status
  }

  /**
   * Sets the status of the session. With `dnd`, the session is given only messages of the member that have the priority
   * `now`. The member has the status of its most available session. @throws SealpostError `summary_malformed`
   * @example session.setStatus({ availability: 'dnd' })
   */
  setStatus(status: Status): void {
    this.peer.setStatus(status)
    this.#incoming.mailbox.setStatus(status)
  }

  /**
   * Ends the session. Unsettled messages of the member go to other sessions. Await your handlers first, as for a peer.
   * @example await session.close()
   */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #close(): Promise<void> {
    await this.#incoming.mailbox.close()
    await this.peer.close()
    const error = await this.peer.closed
    if (error) this.#failure = await this.#cleanUp(error).catch(() => error) // the next start reports it
    await releaseSlot(this.#slot)
  }

  async #ended(): Promise<SealpostError | null> {
    await this.close()
    return this.#failure
  }

  async #cleanUp(error: SealpostError): Promise<SealpostError> {
    return endedByBroker(this.#slot, error, await certifyOptionsOf(this.#options))
  }

  async #fetchCertificate(): Promise<void> {
    // Without a reply, the next start asks again.
    const error = await fetchCertificate(this.#slot, this.peer, this.#options).catch(() => null)
    if (!error) return
    this.#failure = error
    await this.close()
  }
}
