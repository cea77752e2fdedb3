/** Defines a tool, its registration with the SDK, and the context of its calls. */
import { realpath } from 'node:fs/promises'
import { isAbsolute, relative, resolve } from 'node:path'
import type { CallToolResult, McpServer, StandardSchemaWithJSON, ToolAnnotations } from '@modelcontextprotocol/server'
import { SealpostError } from '@sealpost/sdk'
import { OperatingError, type PeerKey } from '@sealpost/std'
import type { z } from 'zod'
import { takeGroupLeave } from '../members/group-leaves.ts'
import { resolveRecipient, SenderNames } from '../members/member-list.ts'
import { type Content, readContent } from '../messages/content.ts'
import { remedyOf } from '../output.ts'
import { Contacts } from '../profile/contacts.ts'
import { openSession, type PeerSession, type PeerSessionOptions, REACH_WITHIN_MS } from '../session/peer-session.ts'
import { PoolHolds } from '../session/pool-holds.ts'
import { abortable, type Shell } from '../shell.ts'
import { JobTaker } from './jobs.ts'
import { FileSaver, type McpInbox, type UnsettledMessage } from './mail.ts'

/** The maximum number of messages that an agent holds; the others go to other sessions or stay with the broker. */
const CREDIT = 32
const OUTCOMES_WITHIN_MS = 2_000
/** The maximum wait of a call. Clients allow 60 s. */
export const WAIT_SECONDS_MAX = 50

interface ToolContextParts {
  readonly shell: Shell
  readonly mail: McpInbox
  /** The allowed recipients; null for everyone. */
  readonly recipients: readonly string[] | null
  readonly folder: string
  /** The folder from which the agent may send files; null for none. */
  readonly outgoing: string | null
}

export class ToolContext {
  readonly shell: Shell
  readonly mail: McpInbox
  readonly files: FileSaver
  readonly jobs: JobTaker
  readonly #outgoing: string | null
  readonly #recipients: readonly string[] | null
  readonly #opened = Promise.withResolvers<PeerSession>()
  readonly #asked = new Set<string>()
  #holds: PoolHolds | null = null

  constructor({ shell, mail, recipients, folder, outgoing }: ToolContextParts) {
    this.shell = shell
    this.mail = mail
    this.files = new FileSaver(shell, folder)
    this.jobs = new JobTaker(mail)
    this.#outgoing = outgoing
    this.#recipients = recipients
  }

  /**
   * Opens a session of the profile. Until the broker has enrolled a new session, the tools that need it don't work.
   * @throws the errors of `openSession`, and the signal's reason
   */
  async openSession(signal: AbortSignal, options: Pick<PeerSessionOptions, 'as' | 'baseLabel' | 'maxAgeSeconds'>) {
    const session = await openSession(
      { ...this.shell, signal },
      {
        ...options,
        ...{ credit: CREDIT, readWhen: 'marked' },
        onWithdrawn: (message) => this.mail.withdraw(message),
      },
    )
    this.#holds = new PoolHolds(this.shell, session.session)
    this.mail.onRead = (message) => session.session.markRead(message)
    session.session.onMessage(async (message) => {
      if (!this.jobs.isWanted(message)) message.retry()
      else if (!(await takeGroupLeave(this.shell, message))) await this.mail.add(message)
    })
    this.#opened.resolve(session)
    return session
  }

  /** The pools that the session is in. Call once `session` has resolved. */
  get holds(): PoolHolds {
    return this.#holds!
  }

  /** @throws OperatingError `unreachable` while the broker has not enrolled the session */
  async session(signal: AbortSignal): Promise<PeerSession> {
    const patience = AbortSignal.timeout(REACH_WITHIN_MS)
    try {
      return await abortable(this.#opened.promise, AbortSignal.any([signal, patience]))
    } catch {
      throw new OperatingError(
        'unreachable',
        'The broker does not respond, and has to enrol the session of this server first. Run `sealpost doctor` to find out why.',
        { retryable: true },
      )
    }
  }

  /** Waits until no other session is given what this one has settled or rejected, but at most 2 s. */
  async outcomesStored(signal: AbortSignal): Promise<void> {
    const { session } = await this.session(signal)
    const late = AbortSignal.any([signal, AbortSignal.timeout(OUTCOMES_WITHIN_MS)])
    await abortable(session.outcomesStored(), late).catch(() => undefined) // the session reports them to the next host
  }

  /** Pins these senders' names. Returns the contacts. */
  async introduce(messages: readonly UnsettledMessage[], session: PeerSession): Promise<Contacts> {
    // Read again, because other commands may have pinned names.
    const contacts = await this.readContacts()
    const names = new SenderNames({ ...session, contacts }, this.shell.output)
    for (const sender of new Set(messages.map(({ message }) => message.user))) {
      if (this.#asked.has(sender)) continue
      this.#asked.add(sender)
      await names.learn(sender)
    }
    return contacts
  }

  /**
   * Returns the content of a message: a text, which becomes a file if it is too long, and perhaps a file.
   * @throws OperatingError `file_not_allowed`, and the errors of `readContent`
   */
  async contentOf({ text, filePath }: { text: string; filePath?: string | undefined }): Promise<Content> {
    const attach = filePath === undefined ? undefined : await this.#allowedFile(filePath)
    return readContent({ text, file: undefined, attach })
  }

  /** Returns the path without links. @throws OperatingError `file_not_allowed`, `file_missing` */
  async #allowedFile(filePath: string): Promise<string> {
    const folder = this.#outgoing
    if (folder === null) throw fileNotAllowed('was started without --send-files')
    const whole = await realpath(resolve(folder, filePath)).catch((cause) => {
      throw new OperatingError('file_missing', 'There is no file at this path.', { cause })
    })
    const within = relative(await realpath(folder), whole)
    if (within.startsWith('..') || isAbsolute(within)) throw fileNotAllowed(`may send only files in ${folder}`)
    return whole
  }

  readContacts(): Promise<Contacts> {
    return Contacts.read(this.shell.profile.contactsFile)
  }

  /**
   * Returns the key of a recipient. @throws OperatingError `recipient_not_allowed`, and the errors of
   * `resolveRecipient`
   */
  async recipientOf(word: string): Promise<PeerKey> {
    const key = await resolveRecipient(this.shell, word)
    await this.#checkRecipient(key, word)
    return key
  }

  /** A session or device of an allowed recipient is allowed. */
  async #checkRecipient(key: PeerKey, word: string): Promise<void> {
    const at = word.lastIndexOf('/')
    const user = at > 0 && this.#recipients !== null ? await this.#keyOf(word.slice(0, at)) : null
    await this.checkRecipient(key, user ?? key)
  }

  /** Checks a recipient and the user whose device it is. @throws OperatingError `recipient_not_allowed`, and the errors of `resolveRecipient` */
  async checkRecipient(key: PeerKey, user: PeerKey = key): Promise<void> {
    if (this.#recipients === null) return
    for (const word of this.#recipients) {
      const allowed = await this.#keyOf(word)
      if (allowed === key || allowed === user) return
    }
    throw notAllowed(this.#recipients)
  }

  /**
   * Call before sending text that the broker or the whole mesh can read. @throws OperatingError `recipient_not_allowed`
   */
  checkEverybody(): void {
    if (this.#recipients !== null) throw notAllowed(this.#recipients)
  }

  /** Returns null if the name is unknown. */
  async #keyOf(word: string): Promise<PeerKey | null> {
    try {
      return await resolveRecipient(this.shell, word)
    } catch (error) {
      if (error instanceof OperatingError && error.code === 'name_unknown') return null
      throw error
    }
  }
}

function fileNotAllowed(why: string): OperatingError {
  return new OperatingError('file_not_allowed', `Nothing was sent: this server ${why}.`)
}

function notAllowed(recipients: readonly string[]): OperatingError {
  return new OperatingError(
    'recipient_not_allowed',
    `Nothing was sent: this server may write only to ${recipients.join(', ')}.`,
  )
}

/** A call's effect outside the conversation, by which clients decide when to ask their user. */
export type Effect = keyof typeof EFFECTS

interface EffectSpec {
  /** Whether the tool sends text that the agent has written. */
  readonly speaks: boolean
  readonly hints: ToolAnnotations
}

/** The hints for clients. Reading returns others' text (`openWorldHint`); what can't be undone is destructive. */
const EFFECTS = {
  lists: { speaks: false, hints: { readOnlyHint: true, openWorldHint: false } },
  reads: { speaks: false, hints: { readOnlyHint: true, openWorldHint: true } },
  sends: {
    speaks: true,
    hints: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
  },
  publishes: {
    speaks: true,
    hints: { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: true },
  },
  saves: {
    speaks: false,
    hints: { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: true },
  },
  settles: {
    speaks: false,
    hints: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: false },
  },
  rejects: {
    speaks: true,
    hints: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: true },
  },
  releases: {
    speaks: false,
    hints: { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  },
} satisfies Record<string, EffectSpec>

interface ToolResult<Output> {
  readonly content: Output
  /** The result for clients that pass only text to the model. Default: the content as JSON. */
  readonly text?: string
}

interface ToolSpec<Input extends z.ZodObject, Output extends z.ZodObject> {
  readonly name: string
  readonly title: string
  readonly description: string
  readonly effect: Effect
  readonly input: Input
  readonly output: Output
  /** Runs the tool. @throws OperatingError, SealpostError; the model sees code and message */
  run(input: z.infer<Input>, context: ToolContext, signal: AbortSignal): Promise<ToolResult<z.infer<Output>>>
}

export interface Tool extends Pick<ToolSpec<z.ZodObject, z.ZodObject>, 'name' | 'title' | 'description' | 'effect'> {
  readonly speaks: boolean
  readonly inputNames: readonly string[]
  register(server: McpServer, context: ToolContext): void
}

export function tool<Input extends z.ZodObject, Output extends z.ZodObject>(row: ToolSpec<Input, Output>): Tool {
  const { name, title, description, effect, input, output } = row
  const { speaks, hints }: EffectSpec = EFFECTS[effect]
  const run = async (given: z.infer<Input>, context: ToolContext, signal: AbortSignal): Promise<CallToolResult> => {
    try {
      const { content, text = JSON.stringify(content) } = await row.run(given, context, signal)
      return { content: [{ type: 'text', text }], structuredContent: content }
    } catch (error) {
      return errorResult(error, context)
    }
  }
  return {
    ...{ name, title, description, effect, speaks, inputNames: Object.keys(input.shape) },
    register: (server, context) => {
      // Untyped, because the SDK infers no types from a generic schema.
      const schemas: Record<'inputSchema' | 'outputSchema', StandardSchemaWithJSON> = {
        inputSchema: input,
        outputSchema: output,
      }
      server.registerTool(name, { title, description, annotations: hints, ...schemas }, (given, { mcpReq }) =>
        run(given as z.infer<Input>, context, mcpReq.signal),
      )
    },
  }
}

/** The key of an error in `_meta`. Clients validate `structuredContent` even with `isError`, so it can't be there. */
export const ERROR_META = 'sealpost/error'

function errorResult(error: unknown, { shell }: ToolContext): CallToolResult {
  const { code, message, isRetryable } = describeError(error)
  if (code === 'internal') shell.output.warn(`Internal error: ${(error as Error).stack ?? error}`)
  return {
    isError: true,
    content: [{ type: 'text', text: `${code}: ${message}` }],
    _meta: { [ERROR_META]: { code, message, isRetryable } },
  }
}

function describeError(error: unknown): { code: string; message: string; isRetryable: boolean } {
  if (error instanceof SealpostError || error instanceof OperatingError) {
    const { code, message } = error
    const isRetryable = error instanceof SealpostError ? error.isRetryable : error.retryable
    return { code, message: message + remedyOf(code), isRetryable }
  }
  return {
    code: 'internal',
    message: 'Sealpost failed with an internal error. Its stderr has the details.',
    isRetryable: false,
  }
}
