/**
 * Hosts the mailbox of a member: one process of a profile has the connection of the member's key, and passes each
 * message to one session (docs/adr/0013-sessions.md). If the host ends, another session becomes the host.
 */

import { rm } from 'node:fs/promises'
import type { Server, Socket } from 'node:net'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { type Millis, withResolvers } from '@sealpost/std'
import { clockMs } from '../driver.ts'
import type { SealpostError } from '../errors.ts'
import type { Message } from '../inbox/message.ts'
import { endInStore } from '../inbox/replies.ts'
import type { EnqueueReports, Peer } from '../peer.ts'
import { openFileStore } from '../stores/file/file-store.ts'
import { type StoreLock, tryLockStore } from '../stores/file/lock.ts'
import type { PeerStore } from '../stores/store.ts'
import {
  type MailClaim,
  MailDistribution,
  type MailId,
  type MailOutcome,
  mailboxOf,
  REPORTS_WITHIN_MS,
} from './distribution.ts'
import { IdleSlots } from './idle-slots.ts'
import {
  fieldsOf,
  finalReplyOf,
  type HostFrame,
  LINK_VERSION,
  listenAt,
  MailboxLink,
  type SessionFrame,
  type SessionLink,
  socketPathOf,
} from './mailbox-link.ts'
import { OutcomeStore } from './outcome-store.ts'
import { isLinked, type KeyedSlot, linkedSessions } from './session-slots.ts'

export interface MailboxHostOptions {
  readonly folder: string
  readonly passphrase?: string | undefined
  /**
   * Whether the peers have no credit, because this session takes only messages of pools. Such a host gives way to a
   * session that takes others.
   */
  readonly isForPools: boolean
  /** Opens the peer of an unnamed session whose process is gone. */
  readonly openSlotPeer: (slot: KeyedSlot, store: PeerStore) => Promise<Peer>
  /** Called when the broker has ended such a session with `revoked`. */
  readonly slotRevoked: (slot: KeyedSlot, error: SealpostError) => Promise<unknown>
  /** Opens the member's peer on its store. */
  readonly openMember: (store: PeerStore) => Promise<Peer>
  /** Called when the peer is open. May return a function, which is called before the peer is closed. */
  readonly begun: (memberPeer: Peer) => Promise<(() => unknown) | undefined>
  /** Called when a session has marked a message as read. */
  readonly read?: (message: Message) => void
  /** Default: `clockMs`. */
  readonly now?: () => Millis
}

/** How long a message waits whose reply was refused. */
const REFUSED_PAUSE_MS: Millis = 5_000
const REPORTS_EVERY_MS: Millis = 50
const TICK_EVERY_MS: Millis = 1_000
/** How often the host looks for idle slots: often after a session has left, otherwise rarely. */
const SCAN_TICKS = 30
const LEAVING_TICKS = 10

/**
 * Makes this process the host. Returns null if another process is the host, or uses the member's key for a moment.
 * @throws SealpostError `folder_path_too_long`, and the errors of the store
 */
export async function startMailboxHost(options: MailboxHostOptions): Promise<MailboxHost | null> {
  const { folder, openMember } = options
  const path = socketPathOf(folder)
  const lock = await tryLockStore(join(folder, 'session'))
  if (!lock) return null
  try {
    const awaited = await linkedSessions(folder)
    const store = new OutcomeStore(await openFileStore(join(folder, 'messages')))
    const peer = await openMember(store).catch(async (error) => {
      await store.close()
      throw error
    })
    const host = new MailboxHost({ options, awaited, store, peer, lock, path })
    await host.start()
    return host
  } catch (error) {
    await lock.release()
    throw error
  }
}

/** The name of the member's mailbox. Names of folders are not empty. */
export const MEMBER = ''

/** A message in the mailbox of the member or of an idle slot. */
interface MailboxMessage {
  readonly message: Message
  readonly peer: Peer
  readonly store: OutcomeStore
}

interface HostParts {
  readonly options: MailboxHostOptions
  readonly awaited: readonly string[]
  readonly store: OutcomeStore
  readonly peer: Peer
  readonly lock: StoreLock
  readonly path: string
}

export class MailboxHost {
  /** The member's peer. */
  readonly peer: Peer
  readonly #parts: HostParts
  readonly #now: () => Millis
  readonly #distribution: MailDistribution
  readonly #links = new Map<string, SessionLink>()
  readonly #sockets = new Set<SessionLink>()
  readonly #messages = new Map<MailId, MailboxMessage>()
  readonly #stores = new Map<string, OutcomeStore>()
  readonly #idleSlots: IdleSlots
  readonly #ended = withResolvers<SealpostError | null>()
  #server: Server | null = null
  #onEnd: (() => unknown) | undefined
  #timer: ReturnType<typeof setTimeout> | undefined
  #ticks = 0
  #leavingUntilTick = LEAVING_TICKS
  #isStopping = false
  #stopped: Promise<void> | null = null

  constructor(parts: HostParts) {
    this.#parts = parts
    this.#now = parts.options.now ?? clockMs
    this.peer = parts.peer
    const ports = {
      give: (label: string, id: MailId) => this.#give(label, id),
      recall: (label: string, id: MailId) => this.#send(label, { type: 'recall', id }),
      refuseClaim: (label: string, id: MailId) => this.#send(label, { type: 'lost', id }),
      finish: (id: MailId, outcome: MailOutcome, label: string) => this.#finish(id, outcome, label),
    }
    this.#distribution = new MailDistribution(ports, parts.awaited, this.#now())
    this.#stores.set(MEMBER, parts.store)
    const { folder, passphrase, openSlotPeer: openPeer, slotRevoked: revoked } = parts.options
    this.#idleSlots = new IdleSlots({
      ...{ folder, passphrase, openPeer, revoked },
      storeFor: (name, store) => this.#noteStore(name, new OutcomeStore(store)),
      opened: (name, peer) => this.#receiveFrom(name, peer),
      closed: (name) => this.#forget(name),
      pause: (names) => this.#distribution.pause(names),
      resume: (names) => this.#distribution.resume(names, this.#now()),
      isInUse: (name) => this.#distribution.isInUse(name),
    })
  }

  /** Resolves when this process is no longer the host: with the error that ended the member's peer, or null. */
  get ended(): Promise<SealpostError | null> {
    return this.#ended.promise
  }

  /** Accepts connections and messages. Releases everything if it fails. */
  async start(): Promise<void> {
    const { path, options } = this.#parts
    // `begun` is called before the first wait, in which the peer's first event can occur.
    const begun = options.begun(this.peer).then((onEnd) => {
      this.#onEnd = onEnd
    })
    const listening = listenAt(path, (socket) => this.#connected(socket)).then((server) => {
      this.#server = server
    })
    const failed = (await Promise.allSettled([begun, listening])).find((result) => result.status === 'rejected')
    if (failed) {
      await this.stop()
      throw failed.reason
    }
    this.#receiveFrom(MEMBER, this.peer)
    void this.peer.closed.then((error) => this.#end(error))
    void this.#tick()
  }

  #connected(socket: Socket): void {
    let label: string | null = null
    const link: SessionLink = new MailboxLink<SessionFrame, HostFrame>(socket, {
      received: (frame) => {
        if (this.#isStopping) return
        if (frame.type === 'hello') {
          label = frame.label
          this.#joined(link, frame)
        } else if (frame.type === 'vacate') void this.#vacate(link, frame.names)
        else if (label !== null && this.#links.get(label) === link) this.#received(label, frame)
      },
      closed: () => {
        this.#sockets.delete(link)
        if (label !== null && this.#links.get(label) === link) this.#left(label)
      },
    })
    this.#sockets.add(link)
  }

  /** Closes the member's peer, then lets another session become the host. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop()
    return this.#stopped
  }

  async #stop(): Promise<void> {
    this.#isStopping = true
    clearTimeout(this.#timer)
    await this.#onEnd?.()
    await Promise.all([this.peer.close(), this.#idleSlots.close()])
    this.#server?.close()
    for (const link of this.#sockets) link.end()
    await rm(this.#parts.path, { force: true })
    await this.#parts.lock.release()
  }

  async #end(error: SealpostError | null): Promise<void> {
    await this.stop()
    this.#ended.resolve(error)
  }

  #joined(link: SessionLink, report: Extract<SessionFrame, { type: 'hello' }>): void {
    this.#links.set(report.label, link)
    link.send({ type: 'welcome', version: LINK_VERSION })
    this.#distribution.joined(report, this.#now())
    for (const { id, isRead } of report.claims) if (isRead) this.#read(id)
    this.#confirmStored()
    this.#updateStatus()
    this.#giveWay()
  }

  /** A pool gives a message that is held at the end of the connection to another member, so it is finished first. */
  #giveWay(): void {
    const { isMailWanted, isAnyHeld } = this.#distribution
    if (this.#parts.options.isForPools && isMailWanted && !isAnyHeld) void this.#end(null)
  }

  /** Confirms the outcomes that a former host has stored. */
  #confirmStored(): void {
    const isStored = (claim: MailClaim) => this.#stores.get(mailboxOf(claim.id))?.has(claim) ?? false
    for (const { label, id } of this.#distribution.takeStored(isStored)) this.#send(label, { type: 'confirmed', id })
  }

  /** Gives up a slot, once it is known which messages the sessions hold. */
  async #vacate(link: SessionLink, names: readonly string[]): Promise<void> {
    const lateMs = this.#now() + REPORTS_WITHIN_MS
    const isIncomplete = () => this.#distribution.awaited.length > 0 && this.#now() < lateMs
    while (isIncomplete() && !this.#isStopping) await delay(REPORTS_EVERY_MS)
    if (this.#isStopping || isIncomplete()) return link.end()
    link.send({ type: 'vacated', name: await this.#idleSlots.vacate(names) })
  }

  #noteStore(name: string, store: OutcomeStore): OutcomeStore {
    this.#stores.set(name, store)
    return store
  }

  #forget(mailbox: string): void {
    this.#stores.delete(mailbox)
    for (const id of this.#distribution.remove(mailbox)) this.#messages.delete(id)
  }

  #receiveFrom(name: string, peer: Peer): void {
    const store = this.#stores.get(name)!
    this.#confirmStored()
    peer.onMessage((message) => {
      message.isUnread = true
      const isOpen = this.#stores.get(name) === store && !this.#isStopping
      if (isOpen) this.#arrived(name, { message, peer, store })
      return new Promise(() => undefined) // the lease is extended until the message has its outcome
    })
  }

  #left(label: string): void {
    this.#links.delete(label)
    this.#leavingUntilTick = this.#ticks + LEAVING_TICKS // it unlocks its folder soon
    if (this.#isStopping) return
    this.#distribution.left(label, this.#now())
    this.#updateStatus()
  }

  #received(label: string, frame: SessionFrame): void {
    const nowMs = this.#now()
    switch (frame.type) {
      case 'read':
        this.#read(frame.id, frame.isMarked)
        return this.#distribution.read(label, frame.id)
      case 'released':
        return this.#distribution.released(label, frame.id, nowMs)
      case 'ended':
        return this.#distribution.ended(label, frame.id, frame.outcome, nowMs)
      case 'answered':
        this.#distribution.ended(label, frame.id, frame.outcome, nowMs)
        return this.#confirmStored() // a former host may have stored it
      case 'extend':
        return this.#messages.get(frame.id)?.message.extend(frame.forMs ?? undefined)
      case 'status':
        this.#distribution.statusChanged(label, frame.status, nowMs)
        return this.#updateStatus()
      case 'thread':
        return this.#distribution.threadTaken(label, frame.thread)
      case 'pools':
        return this.#distribution.poolsChanged(label, frame.pools, nowMs)
      default: // a later version sent it
    }
  }

  #read(id: MailId, isMarked = false): void {
    const message = this.#messages.get(id)?.message
    if (!message) return
    message.isUnread = false
    if (isMarked && mailboxOf(id) === MEMBER) this.#parts.options.read?.(message)
  }

  #arrived(mailbox: string, arrived: MailboxMessage): void {
    const { sender, envelopeId, thread, priority, pool } = arrived.message
    const id: MailId = `${mailbox}/${sender} ${envelopeId}`
    this.#messages.set(id, arrived)
    if (this.#distribution.isRead(id)) this.#read(id)
    this.#distribution.arrived({ id, thread, priority, pool: pool?.id ?? null }, this.#now())
  }

  #give(label: string, id: MailId): void {
    this.#send(label, { type: 'message', id, message: fieldsOf(this.#messages.get(id)!.message) })
  }

  #finish(id: MailId, outcome: MailOutcome, label: string): void {
    const { message, peer, store } = this.#messages.get(id)!
    this.#messages.delete(id)
    if (outcome.kind === 'returned') return message.retry(outcome.afterMs)
    // The store's next write contains the outcome.
    store.afterWrite(() => message.state !== 'put off' && this.#send(label, { type: 'confirmed', id }))
    const reply = finalReplyOf(outcome)
    if (reply) endInStore(peer, message, { ...reply, reports: this.#reportsFor(label, id, message) })
    else if (outcome.kind === 'settled') message.settle()
    else message.reject(outcome.reason)
  }

  #reportsFor(label: string, id: MailId, message: Message): EnqueueReports {
    return {
      kept: () => undefined,
      accepted: (receipt) => this.#send(label, { type: 'receipt', id, receipt }),
      refused: ({ code, message: sentence, isRetryable }) => {
        const error = { code, message: sentence, isRetryable }
        const isStored = message.state !== 'open'
        if (!isStored) message.retry(REFUSED_PAUSE_MS)
        this.#send(label, isStored ? { type: 'receipt', id, receipt: error } : { type: 'refused', id, error })
      },
    }
  }

  #send(label: string, frame: HostFrame): void {
    this.#links.get(label)?.send(frame)
  }

  #updateStatus(): void {
    const { status } = this.#distribution
    if (status) this.peer.setStatus(status)
  }

  #isScanDue(): boolean {
    this.#ticks += 1
    return this.#ticks % SCAN_TICKS === 0 || this.#ticks <= this.#leavingUntilTick
  }

  async #tick(): Promise<void> {
    const { awaited } = this.#distribution
    for (const name of awaited) if (!(await isLinked(this.#parts.options.folder, name))) this.#left(name)
    if (this.#isStopping) return
    this.#distribution.tick(this.#now())
    this.#giveWay()
    if (this.#isScanDue()) void this.#idleSlots.scan().catch(() => undefined) // the folder may have been removed
    this.#timer = setTimeout(() => void this.#tick(), awaited.length > 0 ? REPORTS_EVERY_MS : TICK_EVERY_MS)
  }
}
