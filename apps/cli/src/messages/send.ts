/** `sealpost send` ends when the message is stored, `sealpost request` when the reply has arrived. */

import { open } from 'node:fs/promises'
import { resolve } from 'node:path'
import { fingerprint } from '@sealpost/identity'
import { BODY_BYTES_MAX, PRIORITIES, type Priority } from '@sealpost/protocol'
import type { PeerKey } from '@sealpost/sdk'
import { WAIT_GOALS, type WaitGoal } from '@sealpost/sdk/sent'
import { OperatingError } from '@sealpost/std'
import { Command, Option } from 'commander'
import { explainUnknown, resolveRecipient } from '../members/member-list.ts'
import { escapeName, escapeText } from '../output.ts'
import type { RequestResult } from '../session/peer-calls.ts'
import { callPeer } from '../session/peer-session.ts'
import type { SendParams, TrackedSendResult } from '../session/sent-calls.ts'
import { durationOption, parseDuration } from '../settings.ts'
import { examples, type RunAction, type Shell, withDeadline } from '../shell.ts'
import { uploadFile } from './files.ts'
import { binaryNotice, bodyForPrograms, fileNotice, textOf } from './incoming-message.ts'

interface SendOptions {
  readonly file?: string
  readonly priority: Priority
  readonly ttl?: number
  readonly timeout: number
  /** False: not even until it is stored. */
  readonly wait: WaitGoal | false
  readonly confirm?: boolean
  readonly everyDevice?: boolean
  readonly freeDevice?: boolean
}

export function sendCommand(run: RunAction): Command {
  return new Command('send')
    .description(
      'Send TEXT or stdin to a peer as a message, optionally with a file. The command succeeds when the broker has stored the message.',
    )
    .argument('<TO>', "the recipient's name, fingerprint or key (64 hex digits), or NAME/LABEL for one device")
    .argument('[TEXT]', 'the message; if TEXT and --file are omitted, the message is read from stdin')
    .option('-f, --file <PATH>', 'attach a file of any size; to resume an interrupted upload, run the command again')
    .addOption(new Option('--priority <PRIORITY>', 'the priority of the message').choices(PRIORITIES).default('next'))
    .option(
      '--ttl <TIME>',
      'how long the broker stores the message for an offline recipient, such as 2h or 14d',
      parseDuration,
    )
    .addOption(
      durationOption(
        '--timeout <TIME>',
        'how long to wait for the state; a message that the broker has not stored by then is sent later',
        '30s',
      ),
    )
    .addOption(
      new Option('--every-device', 'send the message to every device of the recipient').conflicts([
        'freeDevice',
        'wait',
        'file',
      ]),
    )
    .addOption(
      new Option('--free-device', 'send the message to one device of the recipient that is online').conflicts([
        'wait',
        'file',
      ]),
    )
    .addOption(
      new Option(
        '--wait <STATE>',
        'succeed when the message is in this state: pushed and settled are the reports of the broker; confirmed is signed by the recipient',
      )
        .choices(WAIT_GOALS)
        .default('stored'),
    )
    .option('--confirm', 'ask the recipient for a signed confirmation, which "sent" shows when it has arrived')
    .option('--no-wait', 'succeed when the message is stored in the profile; the next command sends the message')
    .addHelpText(
      'after',
      examples(
        "sealpost send bob 'are you there?'",
        'git diff | sealpost send bob',
        "sealpost send bob 'as you asked' --file report.pdf --priority now",
        'sealpost send bob < notes.md',
        'sealpost send bob/phone hello',
        'sealpost send bob hello --every-device',
        'sealpost send bob hello --json',
        'sealpost send bob hello --wait confirmed --timeout 10m',
      ),
    )
    .action(run(send))
}

async function send(asked: Shell, options: SendOptions, to: string, text: string | undefined): Promise<void> {
  const { file: path } = options
  const body = await readBody({ text: path === undefined ? text : (text ?? ''), file: undefined })
  const key = await findRecipient(asked, options, to)
  const file = path === undefined ? null : await uploadFile(asked, path, key)
  const params = {
    to: key,
    bodyBase64: Buffer.from(body).toString('base64'),
    priority: options.priority,
    ttlSeconds: options.ttl ?? 0,
    ...(file && { attachment: file.text }),
  }
  const sent = { to: key, bytes: body.length, ...(file && { file: { name: file.name, bytes: file.bytes } }) }
  if (options.everyDevice) return sendToEvery(asked, options, params)
  if (options.freeDevice) return sendToFree(asked, options, params)
  if (options.wait === false) {
    await callPeer(asked, { method: 'enqueue', params })
    await file?.done()
    return say(asked, { ...sent, stored: false }, `queued for ${to}, ${body.length} bytes`)
  }
  if (options.wait !== 'stored' || options.confirm) {
    const result = await sendAndWait(asked, options, params)
    await file?.done()
    return sayOutcome(asked, { ...sent, stored: true }, { to, wait: options.wait, result })
  }
  using shell = withDeadline(
    asked,
    options.timeout,
    `The broker did not store the message within ${options.timeout} s. ${KEPT}`,
  )
  const receipt = await callPeer(shell, { method: 'send', params, withinMs: NO_LIMIT_MS }).catch(async (error) => {
    if (asked.signal.aborted) asked.output.warn(KEPT)
    if ((error as { code?: string }).code === 'unknown_recipient') await explainUnknown(asked, to)
    throw error
  })
  await file?.done()
  const what = file ? `${escapeName(file.name)}, ${file.bytes} bytes` : `${body.length} bytes`
  return say(shell, { ...sent, stored: true, ...receipt }, `stored for ${to}, ${what}`)
}

/** How much later than the call's own time limit the command gives up, so that the call reports the state. */
const SLACK_SECONDS = 5

async function sendAndWait(
  asked: Shell,
  { wait, timeout, confirm = false }: SendOptions,
  params: SendParams,
): Promise<TrackedSendResult> {
  const sentence = `The broker did not store the message within ${timeout} s. ${KEPT}`
  using shell = withDeadline(asked, timeout + SLACK_SECONDS, sentence)
  const untilMs = performance.now() + timeout * 1000
  const goal = { wait: wait as WaitGoal, credit: wait === 'stored' ? 0 : CREDIT }
  const tracked = { ...params, wait: goal.wait, timeoutMs: timeout * 1000, asksConfirmation: confirm }
  const call = { method: 'sendAndWait', params: tracked, withinMs: NO_LIMIT_MS, credit: goal.credit } as const
  let result = await callPeer(shell, call)
  // The wait used another command's session, which has ended.
  while (result.failure?.code === 'closed') {
    const { envelopeId } = result
    const rest = { envelopeId, wait: goal.wait, timeoutMs: Math.max(0, untilMs - performance.now()) }
    const next = { method: 'waitForSent', params: rest, withinMs: NO_LIMIT_MS, credit: goal.credit } as const
    result = { ...result, ...(await callPeer(shell, next)) }
  }
  return result
}

/** Prints what became of the message. @throws OperatingError if it has not reached the awaited state */
async function sayOutcome(
  shell: Shell,
  json: object,
  { to, wait, result }: { to: string; wait: SendOptions['wait']; result: TrackedSendResult },
): Promise<void> {
  const { envelopeId, isDuplicate, sent, failure } = result
  const { state, isSigned, signer } = sent
  const facts = { ...json, envelopeId, isDuplicate, state, isSigned, signer }
  await say(shell, facts, failure ? `stored for ${to} as ${envelopeId}` : `${wait} for ${to}, ${sent.bodyBytes} bytes`)
  if (failure) throw new OperatingError(failure.code, failure.message)
}

async function sendToEvery(asked: Shell, { timeout }: SendOptions, params: SendParams): Promise<void> {
  using shell = withDeadline(asked, timeout, `The broker did not store the message within ${timeout} s. ${KEPT}`)
  const devices = await callPeer(shell, { method: 'sendToEveryDevice', params, withinMs: NO_LIMIT_MS })
  const stored = devices.filter(({ code }) => code === null).length
  await say(shell, { to: params.to, devices }, `stored for ${stored} of ${devices.length} devices`)
  const refused = devices.find(({ code }) => code !== null)
  if (refused) throw new OperatingError(refused.code!, 'The message was not stored for every device of this user.')
}

async function sendToFree(asked: Shell, { timeout }: SendOptions, params: SendParams): Promise<void> {
  using shell = withDeadline(asked, timeout, `The broker did not store the message within ${timeout} s. ${KEPT}`)
  const device = await callPeer(shell, { method: 'sendToFreeDevice', params, withinMs: NO_LIMIT_MS })
  await say(shell, { to: device, stored: true }, `stored for ${fingerprint(device)}`)
}

/** Finds the recipient before anything is stored. */
async function findRecipient(asked: Shell, { timeout }: SendOptions, to: string): Promise<PeerKey> {
  using shell = withDeadline(
    asked,
    timeout,
    `The broker did not return the key of ${escapeName(to)} within ${timeout} s.`,
  )
  return await resolveRecipient(shell, to, NO_LIMIT_MS)
}

const KEPT = "The next command of this profile sends it. Don't send it again."
/** No time limit: the command has its own. */
const NO_LIMIT_MS = 2 ** 31 - 1

async function say({ output }: Shell, json: object, note: string): Promise<void> {
  if (output.isJson) await output.result(json, () => note)
  else output.info(note)
}

interface RequestOptions {
  readonly file?: string
  readonly priority: Priority
  readonly timeout: number
  readonly ifOnline?: boolean
  readonly files?: string
}

export function requestCommand(run: RunAction): Command {
  return new Command('request')
    .description('Send TEXT, the contents of a file, or stdin to a peer as a request, and print the reply')
    .argument('<TO>', "the peer's name, fingerprint or key (64 hex digits)")
    .argument('[TEXT]', 'the request; if TEXT and --file are omitted, the request is read from stdin')
    .option('-f, --file <PATH>', 'read the request from this file; use - for stdin')
    .addOption(
      new Option('--priority <PRIORITY>', 'the priority of the request and its reply')
        .choices(PRIORITIES)
        .default('next'),
    )
    .addOption(
      durationOption(
        '--timeout <TIME>',
        'how long to wait for the reply; a reply that arrives later is delivered as a message',
        '30s',
      ),
    )
    .option('--if-online', 'fail immediately if the peer is offline')
    .option(
      '--files <FOLDER>',
      "save the reply's file in this folder; if this option is omitted, a reply with a file stays in the queue as a message",
    )
    .addHelpText(
      'after',
      examples(
        "sealpost request bob 'which port?'",
        'sealpost request reviewer --file change.diff --timeout 10m',
        'sealpost request bob ping --if-online --json',
        "sealpost request bob 'the plan?' --files ~/Downloads",
      ),
    )
    .action(run(request))
}

/** Large, because unsettled messages may precede the reply. */
const CREDIT = 512

async function request(shell: Shell, options: RequestOptions, to: string, text: string | undefined): Promise<void> {
  const body = await readBody({ text, file: options.file })
  const key = await resolveRecipient(shell, to)
  const params = {
    to: key,
    bodyBase64: Buffer.from(body).toString('base64'),
    priority: options.priority,
    ttlSeconds: 0,
    timeoutMs: options.timeout * 1000,
    ifOnline: options.ifOnline ?? false,
    ...(options.files !== undefined && { folder: resolve(options.files) }),
  }
  const call = { method: 'request', params, withinMs: NO_LIMIT_MS, credit: CREDIT } as const
  const answer = await callPeer(shell, call).catch(async (error) => {
    if ((error as { code?: string }).code === 'unknown_recipient') await explainUnknown(shell, to)
    throw error
  })
  return show(shell, answer)
}

const NOT_SAVED =
  'The reply stays in the queue as a message, because its file was not saved. Save it with `sealpost listen --files FOLDER`.'

async function show({ output }: Shell, { bodyBase64, outcome, ...answer }: RequestResult): Promise<void> {
  const body = new Uint8Array(Buffer.from(bodyBase64, 'base64'))
  const text = escapeText(textOf({ body }) ?? binaryNotice({ body }), '')
  if (answer.isError) throw new OperatingError('answered_error', text)
  await output.result({ ...answer, ...bodyForPrograms({ body }) }, () => text + fileNotice(answer.file, outcome))
  if (outcome.name === 'lost') throw new OperatingError(outcome.code, 'The file of the reply is lost.')
  if (outcome.name === 'left' || outcome.name === 'later') throw new OperatingError('file_not_saved', NOT_SAVED)
}

/** The source of a message body: an argument, a file, or stdin. */
interface BodySource {
  readonly text: string | undefined
  /** `-` is stdin. */
  readonly file: string | undefined
}

/** Reads a message's body. @throws OperatingError `usage`, `file_missing`, `file_unreadable`, `body_too_large` */
export async function readBody({ text, file }: BodySource, stdin = process.stdin): Promise<Uint8Array> {
  if (text !== undefined && file !== undefined)
    throw new OperatingError('usage', 'Give either TEXT or --file, not both.')
  if (text !== undefined) return bounded(new TextEncoder().encode(text))
  if (file !== undefined && file !== '-') return readWhole(file)
  return collect(stdin)
}

/** Reads the stream up to the limit. */
async function collect(stream: AsyncIterable<Uint8Array | string>): Promise<Uint8Array> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of stream) {
    chunks.push(Buffer.from(chunk as Uint8Array))
    size += chunks.at(-1)!.length
    if (size > BODY_BYTES_MAX) throw tooLarge()
  }
  return Buffer.concat(chunks)
}

async function readWhole(path: string): Promise<Uint8Array> {
  const file = await open(path, 'r').catch((cause) => {
    throw (cause as { code?: string }).code === 'ENOENT'
      ? new OperatingError('file_missing', `There is no file at ${path}.`)
      : new OperatingError('file_unreadable', `Can't read the file ${path}.`, { cause })
  })
  try {
    if ((await file.stat()).isDirectory()) throw new OperatingError('file_unreadable', `${path} is a folder.`)
    return await collect(file.createReadStream({ autoClose: false }))
  } finally {
    await file.close()
  }
}

function bounded(body: Uint8Array): Uint8Array {
  if (body.length > BODY_BYTES_MAX) throw tooLarge()
  return body
}

function tooLarge(): OperatingError {
  return new OperatingError('body_too_large', `A message can have at most ${BODY_BYTES_MAX} bytes.`)
}
