/** `sealpost request`: a question to a peer, done when its answer is here. */
import { resolve } from 'node:path'
import { PRIORITIES, type Priority } from '@sealpost/protocol'
import { OperatingError } from '@sealpost/std'
import { Command, Option } from 'commander'
import { examples, type RunAction, type Shell } from '../completion.ts'
import { explainUnknown, resolveRecipient } from '../members/member-list.ts'
import { escapeText } from '../output.ts'
import type { RequestResult } from '../session/peer-calls.ts'
import { callPeer } from '../session/peer-session.ts'
import { durationOption } from '../settings.ts'
import { binaryNotice, bodyForPrograms, fileNotice, textOf } from './incoming-message.ts'
import { readBody } from './send.ts'

interface RequestOptions {
  readonly file?: string
  readonly priority: Priority
  readonly timeout: number
  readonly ifOnline?: boolean
  readonly files?: string
}

export function requestCommand(run: RunAction): Command {
  return new Command('request')
    .description('ask a peer something: TEXT, a file, or stdin; prints the answer')
    .argument('<TO>', 'a name of this mesh, a fingerprint, or a key of 64 hex digits')
    .argument('[TEXT]', 'the question; without it and without --file it is read from stdin')
    .option('-f, --file <PATH>', 'the question is what this file holds; - is stdin')
    .addOption(
      new Option('--priority <PRIORITY>', 'how urgent; the answer is as urgent').choices(PRIORITIES).default('next'),
    )
    .addOption(durationOption('--timeout <TIME>', 'how long to wait; an answer after that is a message', '30s'))
    .option('--if-online', 'give up at once when nobody is there')
    .option(
      '--files <FOLDER>',
      'save the file of the answer there; without it such an answer stays in the queue, as a message',
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

/** Unsettled mail may come before the answer. */
const CREDIT = 512
/** The timeout of the request counts. */
const NO_LIMIT_MS = 2 ** 31 - 1

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
  'The answer stays in the queue as a message, because its file was not saved. `sealpost listen --files FOLDER` saves it.'

async function show({ output }: Shell, { bodyBase64, outcome, ...answer }: RequestResult): Promise<void> {
  const body = new Uint8Array(Buffer.from(bodyBase64, 'base64'))
  const text = escapeText(textOf({ body }) ?? binaryNotice({ body }), '')
  if (answer.isError) throw new OperatingError('answered_error', text)
  await output.result({ ...answer, ...bodyForPrograms({ body }) }, () => text + fileNotice(answer.file, outcome))
  if (outcome.name === 'lost') throw new OperatingError(outcome.code, 'The file of the answer is gone.')
  if (outcome.name === 'left' || outcome.name === 'later') throw new OperatingError('file_not_saved', NOT_SAVED)
}
