/** `sealpost send` ends when the message is stored. */
import { PRIORITIES } from '@sealpost/protocol'
import type { PeerKey } from '@sealpost/sdk'
import type { WaitGoal } from '@sealpost/sdk/sent'
import { OperatingError } from '@sealpost/std'
import { Command, Option } from 'commander'
import { explainUnknown, resolveRecipient } from '../members/member-list.ts'
import { escapeName } from '../output.ts'
import { callPeer, NO_LIMIT_MS, SLACK_SECONDS, WAITING_CREDIT } from '../session/peer-session.ts'
import type { SendParams, TrackedSendResult } from '../session/sent-calls.ts'
import { durationOption, parseDuration } from '../settings.ts'
import { examples, type RunAction, type Shell, withDeadline } from '../shell.ts'
import { base64Of, type Content, readContent } from './content.ts'
import { deliveryTimeOptions, isOnePeer, notBeforeOf, TO_HELP, wordsOf } from './delivery.ts'
import { KEPT, type ManyOptions, say, sendToEvery, sendToFree, sendToMany, sizeOf, waitOptions } from './send-many.ts'

interface SendOptions extends ManyOptions {
  readonly file?: string
  readonly all?: boolean
  readonly everyDevice?: boolean
  readonly freeDevice?: boolean
}

export function sendCommand(run: RunAction): Command {
  return new Command('send')
    .description(
      'Send TEXT or stdin to peers as a message, optionally with a file. The command succeeds when the broker has stored the message. A text of more than 64 KiB is sent as a file with a preview.',
    )
    .argument('<TO>', TO_HELP)
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
      new Option('--all', 'send the message to every session and device of the recipient').conflicts([
        'freeDevice',
        'at',
        'in',
      ]),
    )
    .addOption(new Option('--every-device', 'the same as --all').conflicts(['freeDevice', 'at', 'in']))
    .addOption(
      new Option(
        '--free-device',
        'send the message to one session or device of the recipient that is online',
      ).conflicts(['at', 'in']),
    )
    .addOption(deliveryTimeOptions()[0]!)
    .addOption(deliveryTimeOptions()[1]!)
    .option('--yes', 'send to @everybody without asking')
    .addOption(waitOptions()[0])
    .addOption(waitOptions()[1])
    .option('--no-wait', 'succeed when the message is stored in the profile; the next command sends the message')
    .addHelpText(
      'after',
      examples(
        "sealpost send bob 'are you there?'",
        'git diff | sealpost send bob',
        "sealpost send bob 'as you asked' --file report.pdf --priority now",
        'sealpost send bob < notes.md',
        'sealpost send bob/phone hello',
        "sealpost send bob,carol,@crew 'lunch?'",
        "sealpost send @everybody 'the broker restarts at 18:00' --yes",
        "sealpost send bob 'stand-up' --at 09:30",
        'sealpost send bob hello --all',
        'sealpost send bob hello --json',
        'sealpost send bob hello --wait confirmed --timeout 10m',
        "sealpost send @crew 'who is in?' --wait confirmed --timeout 1h",
      ),
    )
    .action(run(send))
}

async function send(asked: Shell, options: SendOptions, to: string, text: string | undefined): Promise<void> {
  const content = await readContent({ text, file: undefined, attach: options.file })
  if (!isOnePeer(to)) return sendToSeveral(asked, options, { to, content })
  const { body } = content
  const key = await findRecipient(asked, options, to)
  const file = await content.upload(asked, await readersFor(asked, options, key))
  const params = {
    to: key,
    bodyBase64: base64Of(content),
    priority: options.priority,
    ttlSeconds: options.ttl ?? 0,
    ...notBeforeOf(options),
    ...(file && { attachment: file.text }),
  }
  const sent = { to: key, bytes: body.length, ...(file && { file: { name: file.name, bytes: file.bytes } }) }
  if (isForAll(options) || options.freeDevice) {
    await (isForAll(options) ? sendToEvery : sendToFree)(asked, options, params)
    return await file?.done()
  }
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
  return say(shell, { ...sent, stored: true, ...receipt }, `stored for ${to}, ${sizeOf(content, file)}`)
}

function sendToSeveral(asked: Shell, options: SendOptions, { to, content }: { to: string; content: Content }) {
  if (isForAll(options) || options.freeDevice)
    throw new OperatingError('usage', '--all, --every-device and --free-device need a single peer as TO.')
  return sendToMany(asked, options, { words: wordsOf(to), content })
}

async function sendAndWait(
  asked: Shell,
  { wait, timeout, confirm = false }: SendOptions,
  params: SendParams,
): Promise<TrackedSendResult> {
  const sentence = `The broker did not store the message within ${timeout} s. ${KEPT}`
  using shell = withDeadline(asked, timeout + SLACK_SECONDS, sentence)
  const untilMs = performance.now() + timeout * 1000
  const goal = { wait: wait as WaitGoal, credit: wait === 'stored' ? 0 : WAITING_CREDIT }
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

const isForAll = ({ all, everyDevice }: SendOptions): boolean => all === true || everyDevice === true

/** Returns who can open the file of a message to one peer. */
async function readersFor(shell: Shell, options: SendOptions, key: PeerKey): Promise<readonly PeerKey[]> {
  if (!isForAll(options) && !options.freeDevice) return [key]
  const devices = await callPeer(shell, { method: 'devices', params: key })
  return [key, ...devices.map((device) => device.key)]
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
