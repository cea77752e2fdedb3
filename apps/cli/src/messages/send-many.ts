/** Sends a message to several recipients, and waits until each one has it in the state that the user has named. */
import type { EnvelopeId } from '@sealpost/sdk'
import { CONFIRMATIONS_MAX, WAIT_GOALS, type WaitGoal } from '@sealpost/sdk/sent'
import { type Millis, OperatingError } from '@sealpost/std'
import { Option } from 'commander'
import { findOwners } from '../members/owners.ts'
import { escapeName } from '../output.ts'
import { Contacts } from '../profile/contacts.ts'
import { callPeer, NO_LIMIT_MS, SLACK_SECONDS, WAITING_CREDIT } from '../session/peer-session.ts'
import { type SendParams, type WaitResult, wishesOf } from '../session/sent-calls.ts'
import { type Shell, withDeadline } from '../shell.ts'
import { base64Of, type Content } from './content.ts'
import {
  type Audience,
  confirmEverybody,
  type DeliveryTime,
  isEverybody,
  notBeforeOf,
  readersOf,
  reportOutcomes,
  resolveAudience,
  type TrackedOutcome,
} from './delivery.ts'
import type { SentFile } from './files.ts'
import { labelOf } from './incoming-message.ts'

/** What the user wants to know about the message. Times are in seconds. */
export interface WaitOptions {
  readonly timeout: number
  readonly wait: WaitGoal | false
  readonly confirm?: boolean
}

export interface ManyOptions extends WaitOptions, DeliveryTime {
  readonly priority: SendParams['priority']
  readonly ttl?: number
  readonly yes?: boolean
}

/** The options of each command that sends. */
export const waitOptions = (): [wait: Option, confirm: Option] => [
  new Option(
    '--wait <STATE>',
    'succeed when the message is in this state: pushed and settled are the reports of the broker; confirmed is signed by the recipient',
  )
    .choices(WAIT_GOALS)
    .default('stored'),
  new Option('--confirm', 'ask the recipient for a signed confirmation, which "sent" shows when it has arrived'),
]

export const KEPT = "The next command of this profile sends it. Don't send it again."

/** @throws OperatingError `too_many_confirmations`; `usage` for `--no-wait` */
export function wishesFor({ wait, confirm = false }: WaitOptions, recipientCount: number) {
  if (wait === false) throw new OperatingError('usage', '--no-wait needs a single peer as TO.')
  const wishes = wishesOf(wait, confirm)
  if (!wishes.confirm || recipientCount <= CONFIRMATIONS_MAX) return wishes
  throw new OperatingError(
    'too_many_confirmations',
    `At most ${CONFIRMATIONS_MAX} recipients of a message can confirm it; this one has ${recipientCount}. Wait for settled instead.`,
  )
}

export async function sendToMany(
  asked: Shell,
  options: ManyOptions,
  { words, content }: { readonly words: readonly string[]; readonly content: Content },
): Promise<void> {
  const { timeout, priority, ttl: ttlSeconds = 0 } = options
  const audience = await resolveAudience(asked, words)
  const wishes = wishesFor(options, await countOf(asked, audience))
  if (isEverybody(words) && !options.yes) await confirmEverybody(asked, audience.peers.length)
  const file = await content.upload(asked, await readersOf(asked, audience))
  const wait = waitUntil(options)
  using shell = storing(asked, timeout, 'for all recipients')
  const params = {
    ...{ peers: audience.peers, groups: audience.groups.map(({ id }) => id), isEverybody: isEverybody(words) },
    ...{ bodyBase64: base64Of(content), priority, ttlSeconds, ...wishes },
    ...{ ...notBeforeOf(options), ...(file && { attachment: file.text }) },
  }
  const stored = await callPeer(shell, { method: 'sendEach', params, withinMs: NO_LIMIT_MS })
  await file?.done()
  const outcomes = await awaitEach(asked, stored, wait)
  const facts = { bytes: content.body.length, ...(file && { file: { name: file.name, bytes: file.bytes } }) }
  const what = `recipients, ${sizeOf(content, file)}`
  await reportOutcomes(asked, { ...{ outcomes, what, noun: 'recipient' }, json: { ...facts, recipients: outcomes }, state: wait.goal }) // biome-ignore format: one thing
}

/** Sends to every session and device of a user. */
export async function sendToEvery(asked: Shell, options: WaitOptions, params: SendParams): Promise<void> {
  const wait = waitUntil(options)
  using shell = storing(asked, options.timeout)
  const call = { method: 'sendToEveryDevice', params: { ...params, ...wishesFor(options, 1) } } as const
  const stored = await callPeer(shell, { ...call, withinMs: NO_LIMIT_MS })
  const devices = await awaitEach(asked, stored, wait)
  const reached = devices.filter(({ code }) => code === null).length
  await say(asked, { to: params.to, devices }, `${wait.goal} for ${reached} of ${devices.length} devices`)
  const failed = devices.find(({ code }) => code !== null)
  if (failed) throw new OperatingError(failed.code!, `The message is not ${wait.goal} for every device of this user.`)
}

/** Sends to one session or device that is online. */
export async function sendToFree(asked: Shell, options: WaitOptions, params: SendParams): Promise<void> {
  const size = `${Buffer.byteLength(params.bodyBase64, 'base64')} bytes`
  const wait = waitUntil(options)
  using shell = storing(asked, options.timeout)
  const call = { method: 'sendToFreeDevice', params: { ...params, ...wishesFor(options, 1) } } as const
  const { device, envelopeId } = await callPeer(shell, { ...call, withinMs: NO_LIMIT_MS })
  const [outcome] = await awaitEach(asked, [{ peer: device, envelopeId, code: null }], wait)
  const contacts = await Contacts.read(asked.profile.contactsFile)
  const { user, deviceLabel } = (await findOwners(asked, contacts, [device]))(device)
  const name = labelOf(contacts, user, deviceLabel)
  await sayOne(asked, { to: device, stored: true }, { outcome: outcome!, goal: wait.goal, name, size })
}

const ONCE = "Don't send it again."

interface OneOutcome {
  readonly outcome: TrackedOutcome
  readonly goal: WaitGoal
  readonly name: string
  readonly size: string
}

/** Prints what became of a message to one recipient. @throws OperatingError if it has not reached the state */
export async function sayOne(shell: Shell, json: object, { outcome, goal, name, size }: OneOutcome): Promise<void> {
  const { peer: _, code, ...facts } = outcome
  await say(shell, { ...json, ...facts }, `${code === null ? goal : 'stored'} for ${escapeName(name)}, ${size}`)
  if (code !== null) throw new OperatingError(code, `The message is not ${goal}; it is ${outcome.state}. ${ONCE}`)
}

interface Wait {
  readonly goal: WaitGoal
  readonly untilMs: Millis
}

/** The time limit begins when it is called. */
export const waitUntil = ({ wait, timeout }: WaitOptions): Wait => ({
  goal: wait === false ? 'stored' : wait,
  untilMs: performance.now() + timeout * 1000,
})

/** Waits until the message is in the state for each recipient that it is stored for, or the time is over. */
export async function awaitEach<Outcome extends TrackedOutcome>(
  shell: Shell,
  outcomes: readonly Outcome[],
  wait: Wait,
): Promise<readonly (Outcome & TrackedOutcome)[]> {
  const ids = outcomes.flatMap(({ envelopeId, code }) => (envelopeId === null || code !== null ? [] : [envelopeId]))
  if (wait.goal === 'stored' || ids.length === 0) return outcomes
  const results = await resultsOf(shell, ids, wait)
  return outcomes.map((outcome) => {
    const result = outcome.envelopeId === null ? undefined : results.get(outcome.envelopeId)
    if (!result) return outcome
    const { state, isSigned, signer } = result.sent
    return { ...outcome, code: result.failure?.code ?? null, state, isSigned, signer }
  })
}

const SILENT = `The state of the message is not known, because the command that uses the connection of this profile does not respond. ${ONCE}`

/** Repeats the wait for messages whose connection ended with another command. */
async function resultsOf(
  asked: Shell,
  ids: readonly EnvelopeId[],
  { goal: wait, untilMs }: Wait,
): Promise<ReadonlyMap<EnvelopeId, WaitResult>> {
  const results = new Map<EnvelopeId, WaitResult>()
  const leftMs = Math.max(0, untilMs - performance.now())
  using shell = withDeadline(asked, leftMs / 1000 + SLACK_SECONDS, SILENT)
  for (let left = ids; left.length > 0; ) {
    const params = { envelopeIds: left, wait, timeoutMs: Math.max(0, untilMs - performance.now()) }
    const call = { method: 'waitForEach', params, withinMs: NO_LIMIT_MS, credit: WAITING_CREDIT } as const
    const found = await callPeer(shell, call)
    for (const [i, result] of found.entries()) results.set(left[i]!, result)
    left = left.filter((id) => results.get(id)!.failure?.code === 'closed')
  }
  return results
}

/** Returns the number of peers that receive the message. */
export async function countOf({ profile }: Shell, { peers, groups }: Audience): Promise<number> {
  const own = await profile.readOwnKey()
  return peers.length + groups.reduce((sum, { members }) => sum + members.filter((key) => key !== own).length, 0)
}

const storing = (shell: Shell, seconds: number, whom = ''): Shell & Disposable =>
  withDeadline(
    shell,
    seconds,
    `The broker did not store the message ${whom ? `${whom} ` : ''}within ${seconds} s. ${KEPT}`,
  )

export const sizeOf = ({ bytes }: Pick<Content, 'bytes'>, file: SentFile | null): string =>
  file ? `${escapeName(file.name)}, ${file.bytes} bytes` : `${bytes} bytes`

export async function say({ output }: Shell, json: object, note: string): Promise<void> {
  if (output.isJson) await output.result(json, () => note)
  else output.info(note)
}
