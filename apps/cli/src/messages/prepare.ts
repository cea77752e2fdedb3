/** `sealpost prepare` seals and signs a message that a transaction on the broker's database sends. */
import { PRIORITIES, type Priority } from '@sealpost/protocol'
import { OperatingError } from '@sealpost/std'
import { Command, Option } from 'commander'
import { resolveRecipient } from '../members/member-list.ts'
import { escapeName } from '../output.ts'
import { callPeer } from '../session/peer-session.ts'
import { durationOption, parseDuration } from '../settings.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { base64Of, readBody } from './content.ts'

interface PrepareOptions {
  readonly file?: string
  readonly priority: Priority
  readonly ttl?: number
  readonly valid: number
  readonly sql?: boolean
}

export function prepareCommand(run: RunAction): Command {
  return new Command('prepare')
    .description(
      "Seal and sign TEXT or stdin for a peer without sending it, and print it for `sealpost.send`. A transaction on the broker's database that calls `select sealpost.send(…)` sends the message when it commits.",
    )
    .argument('<TO>', "the recipient's name, fingerprint or key (64 hex digits)")
    .argument('[TEXT]', 'the message; if TEXT and --file are omitted, the message is read from stdin')
    .option('-f, --file <PATH>', 'read the message from this file; use - for stdin')
    .addOption(new Option('--priority <PRIORITY>', 'the priority of the message').choices(PRIORITIES).default('next'))
    .option(
      '--ttl <TIME>',
      'how long the broker stores the message for an offline recipient, such as 2h or 14d',
      parseDuration,
    )
    .addOption(durationOption('--valid <TIME>', 'how long the message can be sent, at most 1d', '1d'))
    .option('--sql', 'print the whole SELECT statement instead of the bytea literal')
    .addHelpText(
      'after',
      examples(
        "sealpost prepare bob 'order 7 is paid'",
        `psql "$DATABASE_URL" -c "begin; update orders set paid = true where id = 7; $(sealpost prepare bob 'paid' --sql) commit"`,
        'sealpost prepare bob --json < order.json',
      ),
    )
    .action(run(prepare))
}

const DAY_SECONDS = 86_400

async function prepare(shell: Shell, options: PrepareOptions, to: string, text: string | undefined): Promise<void> {
  if (options.valid > DAY_SECONDS) throw new OperatingError('usage', 'A prepared message can be valid for at most 1d.')
  const body = await readBody({ text, file: options.file })
  const key = await resolveRecipient(shell, to)
  const params = {
    to: key,
    bodyBase64: base64Of({ body }),
    priority: options.priority,
    ttlSeconds: options.ttl ?? 0,
    validSeconds: options.valid,
  }
  const prepared = await callPeer(shell, { method: 'prepare', params })
  const until = new Date(prepared.expiresAtMs).toISOString()
  shell.output.info(
    `prepared for ${escapeName(to)} as ${prepared.envelopeId}; a transaction can send it until ${until}`,
  )
  const { request } = prepared
  await shell.output.result({ to: key, bytes: body.length, ...prepared }, () =>
    options.sql ? `select sealpost.send('${request}');` : request,
  )
}
