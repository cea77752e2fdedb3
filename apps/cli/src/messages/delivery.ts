/**
 * Resolves who receives a message and when. TO is one word or a list of words with commas between them. A word is the
 * name, fingerprint or key of a peer, `NAME/LABEL` for one device, `@GROUP` for the other members of a group, or
 * `@everybody` for all other members of the mesh.
 */
import type { EnvelopeId, GroupId, PeerKey } from '@sealpost/sdk'
import type { SentState, WaitGoal } from '@sealpost/sdk/sent'
import { type Millis, OperatingError } from '@sealpost/std'
import { InvalidArgumentError, Option } from 'commander'
import { resolveRecipient } from '../members/member-list.ts'
import { findOwners } from '../members/owners.ts'
import { escapeName } from '../output.ts'
import { Contacts } from '../profile/contacts.ts'
import { typedYes } from '../profile/passphrase.ts'
import { findGroup, type GroupFacts } from '../session/peer-calls.ts'
import { callPeer } from '../session/peer-session.ts'
import { parseDuration } from '../settings.ts'
import type { Shell } from '../shell.ts'
import type { FileReaders } from './files.ts'
import { labelOf } from './incoming-message.ts'

const RECIPIENT_WORDS =
  'the recipients, separated by commas: a name, a fingerprint, a key (64 hex digits), NAME/LABEL for one device,'
const GROUP_WORD = "@GROUP for a group's other members"

export const TO_HELP = `${RECIPIENT_WORDS} ${GROUP_WORD}, or @everybody for all other members`
export const TO_HELP_WITHOUT_EVERYBODY = `${RECIPIENT_WORDS} or ${GROUP_WORD}`

/** The recipients of one message. */
export interface Audience {
  readonly peers: readonly PeerKey[]
  readonly groups: readonly GroupFacts[]
}

const EVERYBODY = '@everybody'

/** Returns whether TO is the word of one peer. */
export const isOnePeer = (to: string): boolean => !to.includes(',') && !to.startsWith('@')

export const isEverybody = (words: readonly string[]): boolean => words.includes(EVERYBODY)

/** Splits TO into words. @throws OperatingError `usage` */
export function wordsOf(to: string): string[] {
  const words = to.split(',').map((word) => word.trim())
  if (words.includes('')) throw new OperatingError('usage', 'A recipient between two commas is missing.')
  return [...new Set(words)]
}

/**
 * Resolves the recipients before anything is sent, each once.
 * @throws OperatingError `unknown_group`, `group_ambiguous`, and the errors of `resolveRecipient`
 */
export async function resolveAudience(shell: Shell, words: readonly string[]): Promise<Audience> {
  const peers = new Set<PeerKey>()
  const groups = new Map<GroupId, GroupFacts>()
  let listed: readonly GroupFacts[] | undefined
  for (const word of words) {
    if (word === EVERYBODY)
      for (const key of await callPeer(shell, { method: 'everybody', params: null })) peers.add(key)
    else if (word.startsWith('@')) {
      listed ??= await callPeer(shell, { method: 'groups', params: null })
      const group = findGroup(listed, word.slice(1))
      groups.set(group.id, group)
    } else peers.add(await resolveRecipient(shell, word))
  }
  return { peers: [...peers], groups: [...groups.values()] }
}

/** The maximum number of peers that can read a file that is not sent to a group. */
const READERS_MAX = 256

/** Returns who can open the file of a message. @throws OperatingError `too_many_recipients` */
export async function readersOf(shell: Shell, { peers, groups }: Audience): Promise<FileReaders> {
  if (peers.length === 0 && groups.length === 1) return { group: groups[0]!.id }
  const own = await shell.profile.readOwnKey()
  const keys = new Set([...peers, ...groups.flatMap(({ members }) => members.filter((key) => key !== own))])
  if (keys.size <= READERS_MAX) return [...keys]
  throw new OperatingError('too_many_recipients', `A file can have at most ${READERS_MAX} recipients.`)
}

/** Asks on the terminal whether to send to everybody. @throws OperatingError `usage` without a terminal or a yes */
export async function confirmEverybody({ output, signal }: Shell, count: number): Promise<void> {
  if (!process.stdin.isTTY || !output.isInteractive)
    throw new OperatingError('usage', `This sends the message to ${count} members. Add --yes to confirm.`)
  if (await typedYes(`Send this message to ${count} members?`, signal)) return
  throw new OperatingError('usage', 'You did not confirm. Nothing was sent.')
}

/** The outcome for one recipient. The state is absent if the command did not wait for one. */
export interface TrackedOutcome {
  readonly peer: PeerKey
  readonly envelopeId: EnvelopeId | null
  /** Why the message was not stored, or has not reached the state; null if it has. */
  readonly code: string | null
  readonly state?: SentState
  readonly isSigned?: boolean
  readonly signer?: PeerKey | null
}

interface OutcomeReport {
  readonly outcomes: readonly TrackedOutcome[]
  readonly json: object
  /** The state that the command waited for. */
  readonly state: WaitGoal
  /** What the counts are followed by, such as `recipients, 5 bytes`. */
  readonly what: string
  /** Who the outcomes are about. */
  readonly noun: 'recipient' | 'member'
}

/**
 * Prints the outcome for each recipient. @throws OperatingError with the first code if no recipient has the message, or
 * if the command waited and one recipient is not in the state
 */
export async function reportOutcomes(
  shell: Shell,
  { outcomes, json, state, what, noun }: OutcomeReport,
): Promise<void> {
  const { output, profile } = shell
  const refused = outcomes.filter(({ code }) => code !== null)
  const reached = outcomes.length - refused.length
  if (output.isJson) await output.result(json, () => '')
  else output.info(`${state} for ${reached} of ${outcomes.length} ${what}`)
  const contacts = await Contacts.read(profile.contactsFile)
  const unreached = refused.map(({ peer }) => peer)
  const ownerOf = await findOwners(shell, contacts, unreached)
  for (const { peer, code, state: reachedState } of refused) {
    const { user, deviceLabel } = ownerOf(peer)
    const why = `${code}${reachedState ? `; it is ${reachedState}` : ''}`
    output.warn(`not for ${escapeName(labelOf(contacts, user, deviceLabel))} (${why})`)
  }
  if (refused.length === 0 || (state === 'stored' && reached > 0)) return
  const whom = reached === 0 ? `no ${noun}` : `${reached} of ${outcomes.length} ${noun}s`
  throw new OperatingError(refused[0]!.code!, `The message is ${state} for ${whom}.`)
}

const CLOCK_TIME = /^([01]?\d|2[0-3]):([0-5]\d)$/
const DATE_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,3})?)?(Z|[+-]\d\d:\d\d)?$/

/** Parses `14:30` (the next time at which a clock shows it) or `2026-12-01T09:00`, by default in the local time zone. */
function parseTime(text: string, nowMs: Millis = Date.now()): Millis {
  const [, hours, minutes] = CLOCK_TIME.exec(text) ?? []
  if (hours !== undefined) return nextClockTime(Number(hours), Number(minutes), nowMs)
  const atMs = DATE_TIME.test(text) ? new Date(text).getTime() : Number.NaN
  if (Number.isNaN(atMs)) throw new InvalidArgumentError('Use a time such as 14:30 or 2026-12-01T09:00+01:00.')
  if (atMs <= nowMs) throw new InvalidArgumentError('Use a time in the future.')
  return atMs
}

function nextClockTime(hours: number, minutes: number, nowMs: Millis): Millis {
  const at = new Date(nowMs)
  at.setHours(hours, minutes, 0, 0)
  if (at.getTime() <= nowMs) at.setDate(at.getDate() + 1)
  return at.getTime()
}

export interface DeliveryTime {
  readonly at?: Millis
  /** In seconds. */
  readonly in?: number
}

export const deliveryTimeOptions = (): Option[] => [
  new Option('--at <TIME>', 'deliver the message at this time, such as 14:30 or 2026-12-01T09:00')
    .argParser((text: string) => parseTime(text))
    .conflicts('in'),
  new Option('--in <TIME>', 'deliver the message after this time, such as 20m or 2h').argParser(parseDuration),
]

/** Returns the time for the broker; an empty object without a delay. */
export function notBeforeOf({ at, in: seconds }: DeliveryTime): { notBefore?: Millis } {
  const notBefore = at ?? (seconds === undefined ? undefined : Date.now() + seconds * 1000)
  return notBefore === undefined ? {} : { notBefore }
}
