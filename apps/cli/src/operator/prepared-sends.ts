/** `sealpost admin prepared` lists the messages that applications store with `sealpost.send`. */
import * as shapes from '@sealpost/operator'
import { type RefusalCode, refusal, refusalCodes } from '@sealpost/protocol'
import { Command, Option } from 'commander'
import { formatTime } from '../output.ts'
import { parseHex, parseInteger } from '../settings.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { callAdmin, nameOrFingerprint } from './admin-api.ts'

interface PreparedOptions {
  readonly mesh?: string
  readonly status?: shapes.PreparedSendReport['status']
  readonly limit: number
}

export function preparedCommand(run: RunAction): Command {
  const statuses = shapes.PreparedSendReport.shape.status.options
  return new Command('prepared')
    .description(
      'List the messages that applications stored with sealpost.send and that a broker has refused or not sent yet, latest first, with the reason. The broker forgets a decision after a day.',
    )
    .option('--mesh <ID>', 'only messages of this mesh (32 hex digits)', parseHex(16))
    .addOption(new Option('--status <STATUS>', 'only messages with this status').choices(statuses))
    .option('--limit <N>', 'the maximum number of rows', parseInteger(1, 1000), 100)
    .addHelpText('after', examples('sealpost admin prepared', 'sealpost admin prepared --status refused --json'))
    .action(run(list))
}

async function list(shell: Shell, { mesh, status, limit }: PreparedOptions): Promise<void> {
  const query = { meshId: mesh, status, limit }
  const { preparedSends: found } = await callAdmin(shell, {
    ...{ path: '/prepared-sends', answer: shapes.PreparedSends, query },
  })
  const rows = found.map((send) => [
    ...[String(send.id), formatTime(send.queuedAtMs), send.envelopeId],
    ...[nameOrFingerprint(send.senderName, send.sender), nameOrFingerprint(send.recipientName, send.recipient)],
    ...[send.status, String(send.attempts), send.code ?? '', meaningOf(send.code)],
  ])
  const head = ['ID', 'QUEUED (UTC)', 'MESSAGE', 'FROM', 'TO', 'STATUS', 'ATTEMPTS', 'CODE', 'WHY']
  await shell.output.results(found, () =>
    found.length === 0 ? 'nothing waits or was refused' : shell.output.table(head, rows),
  )
}

/** The meanings of codes that only prepared sends have. */
const MEANINGS: Readonly<Record<string, string>> = {
  signature_invalid: 'the request is not signed by its sender',
  unknown_sender: 'the sender is not a member of the mesh',
  revoked: 'the sender was revoked',
  expired: 'the request expired before a broker could send it',
  maybe_sent: 'the broker gave up, but the message may be stored',
}

const isRefusal = (code: string): code is RefusalCode => (refusalCodes as readonly string[]).includes(code)

function meaningOf(code: string | null): string {
  if (code === null) return ''
  return MEANINGS[code] ?? (isRefusal(code) ? refusal(code).meaning : '')
}
