/**
 * Runs turns of an agent for the messages of a session: one at a time in each thread, and several threads at once.
 * `turns.ts` decides, `journal.ts` remembers, `agents.ts` knows the command lines.
 */
import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { BODY_BYTES_MAX } from '@sealpost/protocol'
import type { Message } from '@sealpost/sdk'
import { rejectWithReply, settleWithReply } from '@sealpost/sdk/replies'
import type { Millis, PeerKey } from '@sealpost/std'
import { takeGroupLeave } from '../members/group-leaves.ts'
import { SenderNames } from '../members/member-list.ts'
import { messageKeyOf, nextMessage, retryPause, SavedFiles, uploadFile } from '../messages/files.ts'
import { labelOf, textOf } from '../messages/incoming-message.ts'
import { escapeName, escapeText } from '../output.ts'
import { abortable } from '../shell.ts'
import { answeredBy, TurnRunner, type TurnRunnerOptions, type TurnStart, type WorkItem } from './turn-runner.ts'
import { nextStep, type TurnMessage, type TurnRejection, type TurnStep } from './turns.ts'

export interface WorkerOptions extends TurnRunnerOptions {
  /** The maximum number of turns at a time. */
  readonly concurrency: number
  /** The number of messages after which the worker ends. */
  readonly count: number
  /** Where the files of messages are saved. */
  readonly files: string
}

export class Worker {
  readonly #options: WorkerOptions
  readonly #names: SenderNames
  readonly #saved = new SavedFiles()
  /** The waiting messages by thread. Each thread has one task. */
  readonly #threads = new Map<string, Message[]>()
  readonly #tasks = new Set<Promise<void>>()
  readonly #ending = new AbortController()
  readonly #slots: Slots
  readonly #runner: TurnRunner
  /** Messages that wait for the budget of their sender, which are counted by sender. */
  readonly #deferred = new Map<string, DeferredMessage>()
  /** The threads that have a slot. Their messages stay with this worker. */
  readonly #active = new Set<string>()
  /** Messages that another session is given instead. */
  readonly #withdrawn = new WeakSet<Message>()
  #ended = 0

  constructor(options: WorkerOptions) {
    this.#options = options
    this.#names = new SenderNames(options.session, options.shell.output)
    this.#slots = new Slots(options.concurrency)
    this.#runner = new TurnRunner(options)
  }

  /**
   * Runs until Ctrl-C, `count` messages or the end of the session, and then until the running turns have ended.
   * @throws the errors of the session, the journal and the agent's start
   */
  async run(): Promise<void> {
    const { shell, session } = this.#options
    shell.signal.throwIfAborted()
    const kill = () => this.#runner.kill()
    process.on('exit', kill) // a second Ctrl-C
    try {
      shell.signal.addEventListener('abort', () => this.#end(shell.signal.reason), { once: true })
      await this.#runner.recover()
      void this.#watchOthers()
      session.failed.catch((error) => this.#end(error))
      await this.#receive()
    } finally {
      this.#end(COUNTED) // the watch ends
      process.off('exit', kill)
    }
  }

  /** Removes a message that has not begun, because another session is given it. */
  withdraw(message: Message): void {
    this.#withdrawn.add(message)
    for (const queue of this.#threads.values()) if (queue.includes(message)) queue.splice(queue.indexOf(message), 1)
    this.#saved.forget(message)
  }

  /** Reports the turns of other workers that are killed. */
  async #watchOthers(): Promise<void> {
    const { signal } = this.#ending
    try {
      while (!signal.aborted) {
        await this.#pause(Date.now() + WATCHED_EVERY_MS)
        if (!signal.aborted) await this.#runner.recover()
      }
    } catch (error) {
      this.#end(error)
    }
  }

  async #receive(): Promise<void> {
    const { session } = this.#options
    const { signal } = this.#ending
    while (!signal.aborted) {
      const next = await abortable(nextMessage(session.session), signal).catch(() => null) // the reason is thrown at the end
      if (!next?.value) break
      if (!(await takeGroupLeave(this.#options.shell, next.value))) this.#take(next.value)
    }
    if (this.#options.shell.signal.aborted && this.#runner.runningCount > 0)
      this.#options.shell.output.info('waiting for the running turns to end; press Ctrl-C again to kill them')
    while (this.#tasks.size > 0) await Promise.all(this.#tasks)
    if (!signal.aborted) return session.failed
    if (signal.reason !== COUNTED) throw signal.reason
  }

  #end(reason: unknown): void {
    this.#ending.abort(reason)
  }

  #take(message: Message): void {
    const thread = this.#threadOf(message)
    if (this.#active.has(thread)) this.#markRead(message)
    this.#deferred.delete(messageKeyOf(message))
    const waiting = this.#threads.get(thread)
    if (waiting) return void waiting.push(message)
    this.#threads.set(thread, [message])
    const task = this.#serve(thread).catch((error) => this.#end(error))
    this.#tasks.add(task)
    void task.then(() => this.#tasks.delete(task))
  }

  async #serve(thread: string): Promise<void> {
    const queue = this.#threads.get(thread)!
    for (let message = queue.shift(); message && !this.#ending.signal.aborted; message = queue.shift()) {
      const item = await this.#itemOf(message)
      if (item) await this.#handle(thread, item, queue)
    }
    this.#threads.delete(thread)
  }

  /** Named sessions may run different agents, so each has its own conversations. */
  #threadOf(message: Message): string {
    const { label, isNamed } = this.#options.session.session
    return isNamed ? `${threadOf(message)} as ${label}` : threadOf(message)
  }

  /** Keeps a message in this session. */
  #markRead(message: Message): void {
    this.#options.session.session.markRead(message)
  }

  /** Saves the message's file. Returns null if the message was returned or rejected instead. */
  async #itemOf(message: Message): Promise<WorkItem | null> {
    const { shell, session, files } = this.#options
    await this.#names.learn(message.user)
    const identity = await session.identityFor(message)
    const outcome = await this.#saved.receive(shell, message, { folder: files, identity })
    const id = messageKeyOf(message)
    if (outcome.name === 'later') message.retry(retryPause(message))
    else if (outcome.name === 'lost') await this.#reject({ message, id, outcome }, FILE_LOST)
    else return { message, id, outcome }
    return null
  }

  /** Decides and acts until the message has left this worker. */
  async #handle(thread: string, item: WorkItem, queue: Message[]): Promise<void> {
    while (!this.#ending.signal.aborted && !this.#withdrawn.has(item.message)) {
      if (await this.#isOthers(thread, item)) continue
      const step = this.#next(item)
      switch (step.do) {
        case 'wait':
          await this.#pause(step.atMs)
          break
        case 'start':
          if (await this.#startWhenFree(thread, item, queue)) return
          break
        case 'deliver':
          return this.#deliver([item], Buffer.from(step.reply, 'base64'))
        case 'settle':
          return this.#settle(item, step.why)
        case 'reject':
          return this.#reject(item, step)
        case 'defer':
          return this.#defer(item, step)
      }
    }
  }

  /** Waits for another worker that runs a turn of the thread, or ends its turn if it was killed. */
  async #isOthers(thread: string, { id }: WorkItem): Promise<boolean> {
    const { journal } = this.#options
    await journal.refresh()
    const begun = journal.turns.openTurn(thread, id)
    if (!begun) return false
    if (!(await this.#runner.recoverTurn(begun))) await this.#pause(Date.now() + OTHERS_EVERY_MS)
    return true
  }

  #next({ message, id }: WorkItem): TurnStep {
    const { journal, limits } = this.#options
    const { user: sender, hops, isError, isRedriven } = message
    const thread = this.#threadOf(message)
    const facts: TurnMessage = { id, thread, sender, hops, isError, isRedriven }
    const nowMs = Date.now()
    const isWaiting = (other: DeferredMessage) => other.sender === sender && other.untilMs > nowMs
    const waiting = [...this.#deferred.values()].filter(isWaiting).length
    return nextStep(journal.turns, facts, limits, { nowMs, waiting })
  }

  async #pause(untilMs: Millis): Promise<void> {
    const { signal } = this.#ending
    await delay(untilMs - Date.now(), undefined, { signal }).catch(() => undefined) // the caller looks at the signal
  }

  /** Returns whether the messages have left this worker. */
  async #startWhenFree(thread: string, item: WorkItem, queue: Message[]): Promise<boolean> {
    if (!(await this.#slots.take(this.#ending.signal))) return false
    try {
      const step = this.#next(item) // other turns of the sender may have used its budget
      if (step.do !== 'start' || this.#withdrawn.has(item.message)) return false
      this.#active.add(thread)
      for (const message of [item.message, ...queue]) this.#markRead(message)
      const items = [item, ...this.#companionsOf(item, step, queue)]
      const result = await this.#runner.run(thread, items, step, () => this.#isDue(thread, items, step))
      if (result?.failure === null) await this.#deliver(items, result.reply)
      else queue.unshift(...items.slice(1).map(({ message }) => message)) // each runs alone from now on
      return result?.failure === null
    } finally {
      this.#active.delete(thread)
      this.#slots.release()
    }
  }

  /** Returns whether no other worker has changed what to do with the messages. */
  #isDue(thread: string, [first, ...others]: readonly WorkItem[], { attempt }: TurnStart): boolean {
    const { turns } = this.#options.journal
    const step = this.#next(first!)
    const isSame = step.do === 'start' && step.attempt === attempt && !turns.openTurn(thread, first!.id)
    return isSame && others.every(({ id }) => !turns.recordOf(id))
  }

  /** Takes the next messages of the thread that were not attempted yet, and have the same sender and no file. */
  #companionsOf({ message: first }: WorkItem, { attempt }: TurnStart, queue: Message[]): WorkItem[] {
    const { batch, journal } = this.#options
    const companions: WorkItem[] = []
    while (attempt === 1 && companions.length + 1 < batch) {
      const message = queue[0]
      if (!message || message.user !== first.user || message.attachment !== null) break
      if (message.isError || journal.turns.recordOf(messageKeyOf(message))) break
      companions.push({ message: queue.shift()!, id: messageKeyOf(message), outcome: { name: 'none' } })
    }
    return companions
  }

  /** Sends the reply to the last message and to each request, and settles all messages, in one store write. */
  async #deliver(items: readonly WorkItem[], reply: Buffer): Promise<void> {
    const { peer } = this.#options.session
    const answered = answeredBy(items, reply)
    const { body, attachment, sent } = await this.#fitting(reply, answered[0]?.message)
    const options = { isAutomatic: true, ...(attachment !== undefined && { attachment }) }
    const stored = items.map(async (item) => {
      if (!answered.includes(item)) return item.message.settle()
      const { receipt } = await settleWithReply(peer, item.message, body, options)
      receipt.catch(({ code }) => {
        if (code !== 'kept_for_later') this.#warnOf(item.message, `the reply was not sent (${code})`)
      })
    })
    const failures = (await Promise.allSettled(stored)).map((each) => (each.status === 'rejected' ? each.reason : null))
    const done = items.filter((_, index) => failures[index] === null)
    if (reply.length > 0 && answered.length === 0) await this.#printReply(items.at(-1)!, reply)
    await this.#markEnded(done, null)
    if (done.length === items.length) await sent?.()
    for (const [index, { message }] of items.entries()) if (failures[index]) this.#keepReply(message, failures[index])
  }

  /** Returns a message whose reply could not be stored. The journal keeps the reply for the next delivery. */
  #keepReply(message: Message, error: { code?: string }): void {
    this.#warnOf(message, `the reply was not stored (${error.code ?? 'internal'}) and will be sent later`)
    message.retry(retryPause(message))
  }

  /** Uploads a reply that is too long for a message. */
  async #fitting(reply: Buffer, message: Message | undefined): Promise<FittingReply> {
    if (reply.length <= BODY_BYTES_MAX || !message) return { body: reply }
    const { shell, folder } = this.#options
    const path = join(folder, `reply-${message.envelopeId}.txt`)
    await writeFile(path, reply, { mode: 0o600 })
    const file = await uploadFile(shell, path, message.sender).catch((error: Error) => error)
    if (file instanceof Error) {
      this.#warnOf(message, `the reply was shortened, because its file was not uploaded (${file.message})`)
      return { body: reply.subarray(0, BODY_BYTES_MAX), sent: () => rm(path) }
    }
    return { body: Buffer.from(LONG_REPLY), attachment: file.text, sent: () => file.done().then(() => rm(path)) }
  }

  async #settle(item: WorkItem, why: string | null): Promise<void> {
    item.message.settle()
    if (why === null) return
    this.#warnOf(item.message, `settled without a turn: ${why}`)
    await this.#markEnded([item], null)
  }

  async #reject(item: WorkItem, { reason, text, untilMs }: TurnRejection): Promise<void> {
    const { message } = item
    const { peer } = this.#options.session
    const isExplained = text !== null && !message.noAutoReply && (await this.#mayExplain(message, untilMs))
    const options = { isAutomatic: true, noAutoReply: true }
    if (!isExplained) message.reject(reason)
    else
      await rejectWithReply(peer, message, reason, text, options).catch((error) => {
        this.#warnOf(message, `the error reply was not stored (${error.code ?? 'internal'})`)
        message.reject(reason)
      })
    if (this.#withdrawn.has(message)) return
    this.#warnOf(message, `rejected (${reason})`)
    await this.#markEnded([item], reason)
  }

  async #defer(item: WorkItem, { untilMs, text }: Extract<TurnStep, { do: 'defer' }>): Promise<void> {
    const { message, id } = item
    this.#deferred.set(id, { sender: message.user, untilMs })
    const options = { isAutomatic: true, noAutoReply: true }
    if (!message.noAutoReply && (await this.#mayExplain(message, untilMs)))
      message.replyError(text, options).catch((error) => this.#warnOf(message, `not informed (${error.code})`))
    message.retry(untilMs - Date.now())
    this.#warnOf(message, `returned to the queue: its budget is exhausted until ${new Date(untilMs).toISOString()}`)
  }

  /** Returns whether an explanation may be sent: one to each sender until `untilMs`; 0: to each message. */
  async #mayExplain({ user }: Message, untilMs: Millis): Promise<boolean> {
    const { journal } = this.#options
    if (untilMs === 0) return true
    if (journal.turns.isNotified(user, Date.now())) return false
    await journal.append({ kind: 'notified', sender: user, untilMs })
    return true
  }

  async #markEnded(items: readonly WorkItem[], reason: string | null): Promise<void> {
    if (items.length === 0) return
    const messages = items.map(({ id }) => id)
    await this.#options.journal.append({ kind: 'ended', messages, reason, atMs: Date.now() })
    for (const { message } of items) this.#saved.forget(message)
    this.#ended += items.length
    if (this.#ended >= this.#options.count) this.#end(COUNTED)
  }

  async #printReply({ message }: WorkItem, reply: Buffer): Promise<void> {
    const { shell } = this.#options
    const text = textOf({ body: reply })
    this.#warnOf(message, 'the sender accepts no automatic replies, so the output is printed')
    await shell.output.result({ envelopeId: message.envelopeId, reply: text ?? reply.toString('base64') }, () =>
      escapeText(text ?? `(${reply.length} bytes of binary data)`, ''),
    )
  }

  #warnOf(message: Message, what: string): void {
    const { shell, session } = this.#options
    shell.output.warn(`${escapeName(labelOf(session.contacts, message.user, message.deviceLabel))}: ${what}`)
  }
}

interface FittingReply {
  readonly body: Uint8Array
  readonly attachment?: string
  /** Call when the reply has been stored. */
  readonly sent?: () => Promise<void>
}

interface DeferredMessage {
  readonly sender: PeerKey
  readonly untilMs: Millis
}

/** How often a message looks whether the turn of another worker in its thread has ended. */
const OTHERS_EVERY_MS: Millis = 250
/** How often a worker looks for turns of workers that were killed. */
const WATCHED_EVERY_MS: Millis = 2_000

/** A limited number of turns at a time, given out in order. */
class Slots {
  #free: number
  readonly #waiting = new Set<() => void>()

  constructor(count: number) {
    this.#free = count
  }

  /** Resolves with false if the signal fires first. */
  async take(signal: AbortSignal): Promise<boolean> {
    if (signal.aborted) return false
    if (this.#free > 0) {
      this.#free -= 1
      return true
    }
    const given = Promise.withResolvers<void>()
    this.#waiting.add(given.resolve)
    const isGiven = () => !this.#waiting.delete(given.resolve)
    await abortable(given.promise, signal).catch(() => undefined) // the result reports it
    return isGiven()
  }

  release(): void {
    const next = this.#waiting.values().next().value
    if (!next) this.#free += 1
    else {
      this.#waiting.delete(next)
      next()
    }
  }
}

/** The reason to end after `count` messages. */
const COUNTED = Symbol('counted')

const FILE_LOST: TurnRejection = {
  ...{ do: 'reject', reason: 'file_lost', untilMs: 0 },
  text: 'The file of your message is lost. Send it again.',
}

const LONG_REPLY = 'The reply is too long for a message, so it is in the file.'

/**
 * Returns the name of the conversation. A sender chooses its threads, so a name includes the sender: nobody can enter
 * another's conversation. Messages without a thread belong to one conversation of the sender; those of a pool are
 * separate jobs.
 */
function threadOf({ thread, group, pool, user, envelopeId }: Message): string {
  if (group) return `group ${group.id} ${thread ?? ''}`
  if (thread !== null) return `thread ${user} ${thread}`
  return pool ? `pool ${pool.id} ${envelopeId}` : `user ${user}`
}
