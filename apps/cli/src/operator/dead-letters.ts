/**
 * Lists, redrives and purges dead letters, in the database (`sealpost dead`) or through a broker (`sealpost admin
 * dead`).
 */

import type { RedriveReport } from '@sealpost/operator'
import * as shapes from '@sealpost/operator'
import { redriveRefusals } from '@sealpost/operator/texts'
import { DEATHS, PRIORITIES } from '@sealpost/protocol'
import { type DeliveryId, isHex, type MeshId, OperatingError, type PeerKey } from '@sealpost/std'
import { type DeadLetterFilter, listDeadLetters, purgeDeadLetters, redriveDeadLetters } from '@sealpost/store'
import { Command, InvalidArgumentError, Option } from 'commander'
import { escapeName, formatTime } from '../output.ts'
import { durationOption, parseDuration, parseInteger } from '../settings.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { callAdmin, nameOrFingerprint } from './admin-api.ts'
import { withDatabase } from './db.ts'

/** Selects dead letters by conditions that must all match. */
interface DeadLetterChoice {
  readonly ids?: readonly number[]
  readonly meshId?: MeshId
  readonly recipient?: PeerKey
  readonly reason?: (typeof DEATHS)[number]
  readonly olderThanSeconds?: number
}

interface ShownDeadLetter {
  readonly id: number
  readonly meshName: string
  readonly reason: string
  readonly attempts: number
  readonly bytes: number | null
  readonly diedAtMs: number
  /** Escaped for a table. */
  readonly from: string
  readonly to: string
  readonly forPrograms: object
}

/** The database or a broker. */
interface DeadLetterSource {
  /** The command without `sealpost`. */
  readonly name: string
  readonly description: string
  readonly limitMax: number
  list(shell: Shell, choice: DeadLetterChoice, limit: number): Promise<ShownDeadLetter[]>
  redrive(shell: Shell, choice: DeadLetterChoice, ttlSeconds: number): Promise<RedriveReport>
  purge(shell: Shell, choice: DeadLetterChoice): Promise<number>
}

interface FilterOptions {
  readonly mesh?: MeshId
  readonly to?: PeerKey
  readonly reason?: (typeof DEATHS)[number]
  readonly olderThan?: number
  readonly all?: boolean
}

function deadLetterCommand(run: RunAction, source: DeadLetterSource): Command {
  const { name, description } = source
  const example = (...lines: string[]) => examples(...lines.map((line) => `sealpost ${name} ${line}`))
  return new Command('dead')
    .description(description)
    .addCommand(
      filtered(new Command('list'))
        .description('List dead letters, latest first')
        .option('--limit <N>', 'the maximum number of rows', parseInteger(1, source.limitMax), 100)
        .addHelpText('after', example('list', 'list --reason strikes --json'))
        .action(run(listFrom(source))),
    )
    .addCommand(
      filtered(new Command('redrive'))
        .description('Return dead letters to the end of their queues')
        .argument('[ID...]', `the ids of the dead letters, from \`${name} list\``)
        .option('--all', 'act on all dead letters that match the other options')
        .addOption(
          durationOption('--ttl <TIME>', 'how long the broker stores the redriven messages, counted from now', '14d'),
        )
        .addHelpText('after', example('redrive 1048577 1048578', 'redrive --all --reason strikes'))
        .action(run(redriveFrom(source))),
    )
    .addCommand(
      filtered(new Command('purge'))
        .description('Delete dead letters permanently')
        .argument('[ID...]', `the ids of the dead letters, from \`${name} list\``)
        .option('--all', 'act on all dead letters that match the other options')
        .addHelpText('after', example('purge 1048577', 'purge --all --older-than 30d'))
        .action(run(purgeFrom(source))),
    )
    .addHelpText('after', example('list', 'redrive 1048577', 'purge --all --older-than 30d'))
}

const filtered = (command: Command): Command =>
  command
    .option('--mesh <ID>', 'only dead letters of this mesh (32 hex digits)', hex(16))
    .option('--to <KEY>', 'only dead letters for this recipient (64 hex digits)', hex(32))
    .addOption(new Option('--reason <REASON>', 'only dead letters with this reason').choices(DEATHS))
    .option('--older-than <TIME>', 'only dead letters older than this, such as 30d', parseDuration)

function hex(bytes: number): (text: string) => string {
  return (text) => {
    if (isHex(text, bytes)) return text
    throw new InvalidArgumentError(`Use ${2 * bytes} hex digits.`)
  }
}

const listFrom = (source: DeadLetterSource) => async (shell: Shell, options: FilterOptions & { limit: number }) => {
  const letters = await source.list(shell, choiceOf(options), options.limit)
  const rows = letters.map(({ id, diedAtMs, meshName, reason, from, to, attempts, bytes }) => [
    ...[String(id), formatTime(diedAtMs), escapeName(meshName), reason],
    ...[from, to, String(attempts), bytes === null ? '' : String(bytes)],
  ])
  await shell.output.results(
    letters.map(({ forPrograms }) => forPrograms),
    () => (rows.length === 0 ? 'no dead letters' : shell.output.table(HEAD, rows)),
  )
}

const HEAD = ['ID', 'DIED (UTC)', 'MESH', 'REASON', 'FROM', 'TO', 'ATTEMPTS', 'BYTES']

const redriveFrom =
  (source: DeadLetterSource) =>
  async (shell: Shell, options: FilterOptions & { ttl: number }, words: string[]): Promise<void> => {
    const done = await source.redrive(shell, chosen(source, words, options), options.ttl)
    await shell.output.result(done, () => wordsOf(done, words.length > 0))
    if (words.length > 0 && done.refused.length > 0) throw notRedriven(done)
  }

/** Describes the result: a line per dead letter with ids, otherwise per reason. */
function wordsOf({ redriven, left, refused }: RedriveReport, areNamed: boolean): string {
  const lines = areNamed
    ? refused.map(({ id, reason }) => `${id}: ${redriveRefusals[reason]} (${reason})`)
    : [...Map.groupBy(refused, ({ reason }) => reason)].map(
        ([reason, { length }]) =>
          `${length}${left > refused.length ? ' or more' : ''}: ${redriveRefusals[reason]} (${reason})`,
      )
  return [`${redriven} redriven, ${left} not redriven`, ...lines].join('\n')
}

function notRedriven({ refused }: RedriveReport): OperatingError {
  const isUnknown = refused.some(({ reason }) => reason === 'unknown')
  const these = refused.length === 1 ? '1 dead letter was' : `${refused.length} dead letters were`
  return new OperatingError(isUnknown ? 'dead_letter_unknown' : 'dead_letter_refused', `${these} not redriven.`)
}

const purgeFrom =
  (source: DeadLetterSource) =>
  async (shell: Shell, options: FilterOptions, words: string[]): Promise<void> => {
    const purged = await source.purge(shell, chosen(source, words, options))
    await shell.output.result({ purged }, () => `${purged} purged`)
    if (words.length > purged) throw notAll(words.length - purged)
  }

/** Returns the selection. A forgotten argument must not select everything. @throws OperatingError `usage` */
function chosen({ name }: DeadLetterSource, words: readonly string[], options: FilterOptions): DeadLetterChoice {
  if (words.length > 0 === (options.all === true))
    throw new OperatingError('usage', 'Give the IDs of the dead letters, or --all, but not both.')
  const idOf = (word: string): number => {
    if (/^\d{1,16}$/.test(word) && Number.isSafeInteger(Number(word))) return Number(word)
    throw new OperatingError('usage', `The ID ${escapeName(word)} is not a number. \`${name} list\` prints the IDs.`)
  }
  return words.length > 0 ? { ...choiceOf(options), ids: words.map(idOf) } : choiceOf(options)
}

const choiceOf = ({ mesh, to, reason, olderThan }: FilterOptions): DeadLetterChoice => ({
  ...(mesh && { meshId: mesh }),
  ...(to && { recipient: to }),
  ...(reason && { reason }),
  ...(olderThan !== undefined && { olderThanSeconds: olderThan }),
})

const notAll = (missing: number) =>
  new OperatingError('dead_letter_unknown', `${missing} of these IDs belong to no dead letter.`)

export const deadCommand = (run: RunAction): Command => deadLetterCommand(run, inDatabase)

const filterOf = ({ ids, ...choice }: DeadLetterChoice): DeadLetterFilter => ({
  ...choice,
  ...(ids && { ids: ids as DeliveryId[] }),
})

const inDatabase: DeadLetterSource = {
  name: 'dead',
  description: 'For operators: manage dead letters in the database. The commands need DATABASE_URL.',
  limitMax: 100_000,
  list: async (shell, choice, limit) => {
    const letters = await withDatabase(shell, (db) => listDeadLetters(db, filterOf(choice), limit))
    return letters.map((letter) => ({
      ...letter,
      from: nameOrFingerprint(letter.senderName, letter.sender),
      to: nameOrFingerprint(letter.recipientName, letter.recipient),
      forPrograms: { ...letter, priority: PRIORITIES[letter.priority] },
    }))
  },
  redrive: (shell, choice, ttlSeconds) =>
    withDatabase(shell, async (db) => {
      const { refused, ...counts } = await redriveDeadLetters(db, filterOf(choice), { ttlSeconds })
      return { ...counts, refused: [...refused] }
    }),
  purge: (shell, choice) => withDatabase(shell, (db) => purgeDeadLetters(db, filterOf(choice))),
}

export const adminDeadCommand = (run: RunAction): Command => deadLetterCommand(run, byBroker)

const bodyOf = (choice: DeadLetterChoice) => ({ ...choice, ...(choice.ids === undefined && { all: true }) })

const byBroker: DeadLetterSource = {
  name: 'admin dead',
  description: 'Manage dead letters through the operators’ interface of a broker',
  limitMax: 1000,
  list: async (shell, { ids: _, ...query }, limit) => {
    const request = { path: '/dead-letters', answer: shapes.DeadLetters, query: { ...query, limit } }
    const { deadLetters } = await callAdmin(shell, request)
    return deadLetters.map((letter) => ({
      ...letter,
      from: nameOrFingerprint(letter.senderName, letter.sender),
      to: nameOrFingerprint(letter.recipientName, letter.recipient),
      forPrograms: letter,
    }))
  },
  redrive: (shell, choice, ttlSeconds) => {
    const body = { ...bodyOf(choice), ttlSeconds }
    return callAdmin(shell, { path: '/dead-letters/redrive', answer: shapes.RedriveReport, body })
  },
  purge: async (shell, choice) => {
    const request = { path: '/dead-letters/purge', answer: shapes.Purged, body: bodyOf(choice) }
    return (await callAdmin(shell, request)).purged
  },
}
