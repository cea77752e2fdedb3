/**
 * Knows the agents: how a conversation is begun and resumed on their command lines, and how their output is read.
 * Sources: https://code.claude.com/docs/en/cli-reference and https://code.claude.com/docs/en/headless for Claude Code,
 * https://github.com/openai/codex/blob/main/docs/exec.md for Codex.
 */
import { randomUUID } from 'node:crypto'
import { basename } from 'node:path'
import { isRecord, parseJson } from '../profile/profile.ts'

export const AGENT_NAMES = ['claude', 'codex', 'command'] as const
export type AgentName = (typeof AGENT_NAMES)[number]

/** What an agent has printed, and how it ended. */
export interface AgentOutput {
  readonly stdout: Buffer
  /** The end of stderr. */
  readonly stderr: string
  /** Why the agent counts as failed; null if it exited with code 0. */
  readonly failure: string | null
}

export interface AgentResult {
  readonly reply: Buffer
  /** Null if the agent reports none. */
  readonly cost: number | null
  readonly failure: string | null
  /** The conversation to resume next; null: it does not exist; undefined: unchanged. */
  readonly conversation: string | null | undefined
}

/** A conversation that a turn continues or begins. */
export interface TurnConversation {
  readonly id: string | null
  readonly isNew: boolean
}

export interface Agent {
  readonly name: AgentName
  /** Whether a turn that was cut can continue in its conversation. */
  readonly canResume: boolean
  /** Whether the agent reads a labelled text, instead of the message's body. */
  readonly readsText: boolean
  /** Returns the id of a new conversation, if it can be chosen. */
  newConversation(): string | null
  commandLine(conversation: TurnConversation): readonly string[]
  /** Returns the conversation that a line of output names. */
  conversationIn(line: string): string | null
  read(output: AgentOutput): AgentResult
}

/** Returns the agent that the first word of a command names. */
export function agentNameOf(words: readonly string[]): AgentName {
  const program = basename(words[0] ?? '')
  return program === 'claude' || program === 'codex' ? program : 'command'
}

export function agentOf(name: AgentName, words: readonly string[]): Agent {
  switch (name) {
    case 'claude':
      return claude(words.length > 0 ? words : ['claude'])
    case 'codex':
      return codex(words.length > 0 ? words : ['codex'])
    case 'command':
      return command(words)
  }
}

function command(words: readonly string[]): Agent {
  return {
    name: 'command',
    canResume: false,
    readsText: false,
    newConversation: () => null,
    commandLine: () => words,
    conversationIn: () => null,
    read: ({ stdout, failure }) => ({ reply: stdout, cost: null, failure, conversation: undefined }),
  }
}

/** Options with which the user chooses a conversation; it is then the same for all threads. */
const CLAUDE_CONVERSATION = ['--resume', '-r', '--continue', '-c', '--session-id', '--from-pr']
const CLAUDE_LOST = /No conversation found/i

function claude(words: readonly string[]): Agent {
  const has = (...names: readonly string[]) => words.some((word) => names.includes(word.split('=', 1)[0]!))
  const isChosen = has(...CLAUDE_CONVERSATION)
  const fixed = [
    ...(has('-p', '--print') ? [] : ['-p']),
    ...(has('--output-format') ? [] : ['--output-format', 'json']),
  ]
  return {
    name: 'claude',
    canResume: true,
    readsText: true,
    newConversation: () => (isChosen ? null : randomUUID()),
    commandLine: ({ id, isNew }) => [
      ...words,
      ...fixed,
      ...(isChosen || id === null ? [] : [isNew ? '--session-id' : '--resume', id]),
    ],
    conversationIn: () => null,
    read: (output) => {
      const isLost = output.failure !== null && CLAUDE_LOST.test(`${output.stderr}\n${output.stdout}`)
      const { conversation, ...result } = readClaude(output)
      return { ...result, conversation: isLost ? null : isChosen ? undefined : conversation }
    },
  }
}

function readClaude({ stdout, failure }: AgentOutput): AgentResult {
  const result = claudeResultIn(stdout.toString())
  if (!result) return { reply: stdout, cost: null, failure, conversation: undefined }
  const { result: text, is_error: isError, subtype, session_id: session, total_cost_usd: cost } = result
  const isFailed = isError === true || typeof text !== 'string'
  return {
    reply: Buffer.from(typeof text === 'string' ? text : ''),
    cost: typeof cost === 'number' ? cost : null,
    failure:
      failure ?? (isFailed ? `Claude Code reported ${typeof subtype === 'string' ? subtype : 'an error'}` : null),
    conversation: typeof session === 'string' ? session : undefined,
  }
}

/** Finds the result in the output: one object, an array that contains it, or the last of several lines. */
function claudeResultIn(stdout: string): Record<string, unknown> | null {
  const whole = parseJson(stdout) ?? parseJson(stdout.trimEnd().split('\n').at(-1)!)
  const items: readonly unknown[] = Array.isArray(whole) ? whole : [whole]
  return items.filter(isRecord).findLast(({ type }) => type === 'result') ?? null
}

function codex(words: readonly string[]): Agent {
  const [program, ...rest] = words
  const flags = rest[0] === 'exec' ? rest.slice(1) : rest
  const isChosen = flags.includes('resume')
  const first = [program!, 'exec', ...flags, ...(isChosen || flags.includes('--json') ? [] : ['--json'])]
  return {
    name: 'codex',
    canResume: true,
    readsText: true,
    newConversation: () => null,
    commandLine: ({ id }) => (isChosen ? first : id === null ? [...first, '-'] : [...first, 'resume', id, '-']),
    conversationIn: (line) => {
      const event = isChosen ? null : parseJson(line)
      return isRecord(event) && event.type === 'thread.started' && typeof event.thread_id === 'string'
        ? event.thread_id
        : null
    },
    read: readCodex,
  }
}

const CODEX_LOST =
  /\bno (?:saved )?(?:rollout|session|conversation|thread)\b|(?:rollout|session|conversation|thread)\b.*not found/i

function readCodex({ stdout, stderr, failure }: AgentOutput): AgentResult {
  const events = stdout.toString().split('\n').map(parseJson).filter(isRecord)
  if (events.length === 0)
    return {
      reply: stdout,
      cost: null,
      failure,
      conversation: failure !== null && CODEX_LOST.test(stderr) ? null : undefined,
    }
  const items = events.filter(({ type }) => type === 'item.completed').map(({ item }) => item)
  const text = items.filter(isRecord).findLast(({ type }) => type === 'agent_message')?.text
  const isFailed = events.some(({ type }) => type === 'turn.failed')
  return {
    reply: Buffer.from(typeof text === 'string' ? text : ''),
    cost: null,
    failure: failure ?? (isFailed ? 'Codex reported turn.failed' : null),
    conversation: undefined, // `conversationIn` has read it
  }
}
