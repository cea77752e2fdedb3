/** `sealpost dead`: for operators, deliveries that left their queues unsettled. It works on the database itself. */
import {
  type DeadLetter,
  type DeadLetterFilter,
  listDeadLetters,
  purgeDeadLetters,
  redriveDeadLetters,
} from '@sealpost/db'
import { PRIORITIES } from '@sealpost/protocol'
import { type DeliveryId, isHex, type MeshId, OperatingError, type PeerKey } from '@sealpost/std'
import { Command, InvalidArgumentError } from 'commander'
import { Contacts } from '../contacts.ts'
import { withDatabase } from '../operator-database.ts'
import type { Output } from '../output.ts'
import { labelOf } from '../peer-news.ts'
import { examples, type Run, type Shell } from '../shell.ts'
import { escapeName } from '../terminal-text.ts'
import { duration, timeOption, whole } from '../words.ts'

interface FilterOptions {
  readonly mesh?: MeshId
  readonly to?: PeerKey
  readonly reason?: string
  readonly olderThan?: number
  readonly all?: boolean
}

export function deadCommand(run: Run): Command {
  return new Command('dead')
    .description('for operators: deliveries that were given up; needs DATABASE_URL')
    .addCommand(listCommand(run))
    .addCommand(redriveCommand(run))
    .addCommand(purgeCommand(run))
    .addHelpText(
      'after',
      examples('sealpost dead list', 'sealpost dead redrive 1048577', 'sealpost dead purge --older-than 30d'),
    )
}

function listCommand(run: Run): Command {
  return filtered(new Command('list'))
    .description('show dead letters, the latest first')
    .option('--limit <N>', 'how many at most', whole(1, 100_000), 100)
    .addHelpText('after', examples('sealpost dead list', 'sealpost dead list --reason strikes --json'))
    .action(run(list))
}

function redriveCommand(run: Run): Command {
  return filtered(new Command('redrive'))
    .description('put dead letters back at the end of their queues')
    .argument('[ID...]', 'which ones, as `dead list` names them')
    .option('--all', 'every one that the options leave')
    .addOption(timeOption('--ttl <TIME>', 'how long the broker keeps them now', '14d'))
    .addHelpText(
      'after',
      examples('sealpost dead redrive 1048577 1048578', 'sealpost dead redrive --all --reason strikes'),
    )
    .action(run(redrive))
}

function purgeCommand(run: Run): Command {
  return filtered(new Command('purge'))
    .description('throw dead letters away for good')
    .argument('[ID...]', 'which ones, as `dead list` names them')
    .option('--all', 'every one that the options leave')
    .addHelpText('after', examples('sealpost dead purge 1048577', 'sealpost dead purge --all --older-than 30d'))
    .action(run(purge))
}

function filtered(command: Command): Command {
  return command
    .option('--mesh <ID>', 'only of this mesh, 32 hex digits', hex<MeshId>(16))
    .option('--to <KEY>', 'only for this recipient, 64 hex digits', hex<PeerKey>(32))
    .option('--reason <REASON>', 'only with this reason, like strikes or expired')
    .option('--older-than <TIME>', 'only those dead for so long, like 30d', duration)
}

function hex<T extends string>(bytes: number): (text: string) => T {
  return (text) => {
    if (isHex(text, bytes)) return text as string as T
    throw new InvalidArgumentError(`It is ${2 * bytes} hex digits.`)
  }
}

async function list(shell: Shell, options: FilterOptions & { limit: number }): Promise<void> {
  const { output, profile } = shell
  const letters = await withDatabase(shell, (db) => listDeadLetters(db, filterOf(options), options.limit))
  const contacts = await Contacts.read(profile.contactsFile)
  await output.answers(letters.map(forPrograms), () =>
    letters.length === 0 ? 'no dead letters' : tableOf(letters, output, contacts),
  )
}

async function redrive(shell: Shell, options: FilterOptions & { ttl: number }, words: string[]): Promise<void> {
  const filter = chosen(words, options)
  const redriven = await withDatabase(shell, (db) => redriveDeadLetters(db, filter, { ttlSeconds: options.ttl }))
  await shell.output.answer(redriven, () => `${redriven.redriven} put back, ${redriven.left} left as they are`)
  if (words.length > redriven.redriven) throw notAll(words.length - redriven.redriven)
}

async function purge(shell: Shell, options: FilterOptions, words: string[]): Promise<void> {
  const filter = chosen(words, options)
  const purged = await withDatabase(shell, (db) => purgeDeadLetters(db, filter))
  await shell.output.answer({ purged }, () => `${purged} thrown away`)
  if (words.length > purged) throw notAll(words.length - purged)
}

/** Nobody loses all of them by forgetting a word. @throws OperatingError `usage` */
function chosen(words: string[], options: FilterOptions): DeadLetterFilter {
  if (words.length > 0 === (options.all === true))
    throw new OperatingError('usage', 'Name the dead letters by their IDs, or say --all; not both.')
  return words.length > 0 ? { ...filterOf(options), ids: words.map(idOf) } : filterOf(options)
}

function idOf(word: string): DeliveryId {
  if (/^\d{1,16}$/.test(word) && Number.isSafeInteger(Number(word))) return Number(word) as DeliveryId
  throw new OperatingError('usage', `An ID is a number, as \`dead list\` shows it, not ${escapeName(word)}.`)
}

function filterOf({ mesh, to, reason, olderThan }: FilterOptions): DeadLetterFilter {
  return {
    ...(mesh && { meshId: mesh }),
    ...(to && { recipient: to }),
    ...(reason && { reason }),
    ...(olderThan !== undefined && { olderThanSeconds: olderThan }),
  }
}

const notAll = (missing: number) =>
  new OperatingError('dead_letter_unknown', `${missing} of those are no dead letters, or can't be put back.`)

const forPrograms = (letter: DeadLetter) => ({ ...letter, priority: PRIORITIES[letter.priority] })

function tableOf(letters: readonly DeadLetter[], output: Output, contacts: Contacts): string {
  const rows = letters.map((letter) => [
    String(letter.id),
    new Date(letter.diedAtMs).toISOString().slice(0, 16).replace('T', ' '),
    escapeName(letter.reason),
    labelOf(contacts, letter.sender),
    labelOf(contacts, letter.recipient),
    String(letter.attempts),
    letter.bytes === null ? '' : String(letter.bytes),
  ])
  return output.table(['ID', 'DIED (UTC)', 'REASON', 'FROM', 'TO', 'ATTEMPTS', 'BYTES'], rows)
}
