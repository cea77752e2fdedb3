/** `sealpost prepare` seals and signs a message that a transaction on the broker's database sends. */
import { BODY_BYTES_MAX, PRIORITIES, type Priority } from '@sealpost/protocol'
import type { PeerKey } from '@sealpost/sdk'
import { OperatingError } from '@sealpost/std'
import { Command, Option } from 'commander'
import { resolveRecipient } from '../members/member-list.ts'
import { escapeName } from '../output.ts'
import { callPeer } from '../session/peer-session.ts'
import { durationOption, parseDuration } from '../settings.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { base64Of, readBody } from './content.ts'
import { wordsOf } from './delivery.ts'

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
    .argument(
      '<TO>',
      'the recipients, separated by commas: a name, a fingerprint, a key (64 hex digits), or NAME/LABEL for one device; each one gets a message of its own',
    )
    .argument(
      '[TEXT]',
      `the message, at most ${BODY_BYTES_MAX} bytes; if TEXT and --file are omitted, the message is read from stdin`,
    )
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
        "sealpost prepare bob,carol 'order 7 is paid' --sql",
      ),
    )
    .action(run(prepare))
}

const DAY_SECONDS = 86_400

async function prepare(shell: Shell, options: PrepareOptions, to: string, text: string | undefined): Promise<void> {
  if (options.valid > DAY_SECONDS) throw new OperatingError('usage', 'A prepared message can be valid for at most 1d.')
  const words = wordsOf(to)
  if (words.some((word) => word.startsWith('@')))
    throw new OperatingError('usage', 'A message can be prepared for peers only, not for groups or for everybody.')
  const body = await readBody({ text, file: options.file })
  const recipients = new Map<PeerKey, string>()
  for (const word of words) recipients.set(await resolveRecipient(shell, word), word)
  const terms = { priority: options.priority, ttlSeconds: options.ttl ?? 0, validSeconds: options.valid }
  const { output } = shell
  for (const [key, word] of recipients) {
    const params = { to: key, bodyBase64: base64Of({ body }), ...terms }
    const prepared = await callPeer(shell, { method: 'prepare', params })
    const { envelopeId, expiresAtMs, request } = prepared
    const until = new Date(expiresAtMs).toISOString()
    output.info(`prepared for ${escapeName(word)} as ${envelopeId}; a transaction can send it until ${until}`)
    await output.result({ to: key, bytes: body.length, ...prepared }, () =>
      options.sql ? `select sealpost.send('${request}');` : request,
    )
  }
}
