/** What a row of the table of tools is, and what it becomes for a client. */
import type { CallToolResult, McpServer, StandardSchemaWithJSON, ToolAnnotations } from '@modelcontextprotocol/server'
import { SealpostError } from '@sealpost/sdk'
import { OperatingError, type PeerKey } from '@sealpost/std'
import type { z } from 'zod'
import { resolveRecipient, SenderNames } from '../members/member-list.ts'
import { Contacts } from '../profile/contacts.ts'
import { openSession, type PeerSession, REACH_WITHIN_MS } from '../session/peer-session.ts'
import { abortable, type Shell } from '../shell.ts'
import { FileSaver, type McpInbox, type UnsettledMessage } from './mail.ts'

/** What the tools work with: this profile, its session once it is ours, and the mail that came over it. */

/** What an agent reads in a turn, and not all that waits: the rest stays with the broker. */
const CREDIT = 32

interface ToolContextParts {
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
    // Read again: other commands pin names meanwhile.
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

/** What a call does outside of this conversation: clients decide by its hints what to ask their user about. */
export type Effect = keyof typeof EFFECTS

interface EffectSpec {
  /** Words of the agent leave for someone. */
  readonly speaks: boolean
  readonly hints: ToolAnnotations
}

/**
 * Reading is of the open world: what comes back was written by others. A message that was sent can't be called back, and
 * a settled or rejected one does not come again; these are marked destructive so that a client asks first.
 */
const EFFECTS = {
  looks: { speaks: false, hints: { readOnlyHint: true, openWorldHint: false } },
  reads: { speaks: false, hints: { readOnlyHint: true, openWorldHint: true } },
  sends: {
    speaks: true,
    hints: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
  },
  tells: {
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
  'gives back': {
    speaks: false,
    hints: { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  },
} satisfies Record<string, EffectSpec>

export interface ToolResult<Output> {
  readonly content: Output
  /** The same for clients that show the model text only; default: the content as JSON. */
  readonly text?: string
}

export interface ToolSpec<Input extends z.ZodObject, Output extends z.ZodObject> {
  readonly name: string
  readonly title: string
  readonly description: string
  readonly effect: Effect
  readonly input: Input
  readonly output: Output
  /** @throws OperatingError, SealpostError: the code and the sentence reach the model */
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
      // Without their types: the SDK infers none of a schema that is itself a type parameter.
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

/** Under `_meta`, since a client checks `structuredContent` against the tool's `outputSchema`, also with `isError`. */
export const ERROR_META = 'sealpost/error'

function errorResult(error: unknown, { shell }: ToolContext): CallToolResult {
  const { code, message, isRetryable } = describeError(error)
  if (code === 'internal') shell.output.warn(`A fault of the program itself: ${(error as Error).stack ?? error}`)
  return {
    isError: true,
    content: [{ type: 'text', text: `${code}: ${message}` }],
    _meta: { [ERROR_META]: { code, message, isRetryable } },
  }
}

function describeError(error: unknown): { code: string; message: string; isRetryable: boolean } {
  if (error instanceof SealpostError) return error
  if (error instanceof OperatingError) {
    const { code, message, retryable } = error
    return { code, message, isRetryable: retryable }
  }
  return { code: 'internal', message: 'A fault of sealpost itself; its stderr says more.', isRetryable: false }
}
