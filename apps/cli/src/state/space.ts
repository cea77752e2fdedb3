/** `sealpost space` sets and shows the terms on which a mesh or a group keeps state and history. */

import type { SpaceStatus, SpaceTerms } from '@sealpost/sdk/state'
import { Command, InvalidArgumentError, Option } from 'commander'
import { parseDuration } from '../settings.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { declareSpace } from './open-state.ts'
import { GROUP_OPTION, instantText, spacePlaceOf, withState } from './state.ts'

export function spaceCommand(run: RunAction): Command {
  return new Command('space')
    .description('Manage the space of a mesh or a group: its state and history')
    .addCommand(openCommand(run))
    .addCommand(showCommand(run))
    .addHelpText('after', examples('sealpost space open', 'sealpost space show'))
}

interface OpenOptions {
  readonly group?: string
  readonly historyFor?: 'none' | 'joined' | 'all'
  readonly keep?: number
  readonly keepSize?: number
  readonly messages?: boolean
}

function openCommand(run: RunAction): Command {
  return new Command('open')
    .description(
      "Open a space, or change its settings. Settings whose options you omit do not change. An admin can open the space of a mesh, and a group's owner can open the space of the group.",
    )
    .option(...GROUP_OPTION)
    .addOption(
      new Option(
        '--history-for <WHO>',
        'which members can read entries that were written before they joined; default for a new space: all',
      ).choices(['none', 'joined', 'all']),
    )
    .option('--keep <TIME>', 'how long the history is stored, such as 90d; default for a new space: 30d', parseDuration)
    .option('--keep-size <SIZE>', 'the maximum size of the history, such as 500MB; default for a new space: 10GB', size)
    .option('--messages', 'also record messages that are sent with "sealpost group send --keep"')
    .option('--no-messages', 'stop recording messages')
    .addHelpText(
      'after',
      examples('sealpost space open', 'sealpost space open --group crew --messages --history-for joined --keep 90d'),
    )
    .action(run(open))
}

async function open(shell: Shell, options: OpenOptions): Promise<void> {
  const { group, historyFor, keep, keepSize, messages: keepsMessages } = options
  await declareSpace(shell, await spacePlaceOf(shell, group), {
    ...(await standingTerms(shell, group)),
    ...(historyFor !== undefined && { historyFor }),
    ...(keepsMessages !== undefined && { keepsMessages }),
    ...(keep !== undefined && { keepSeconds: keep }),
    ...(keepSize !== undefined && { keepBytes: keepSize }),
  })
  await show(shell, group)
}

/** Returns the current terms, so that unmentioned ones keep their values. */
async function standingTerms(shell: Shell, group: string | undefined): Promise<SpaceTerms> {
  try {
    const { historyFor, keepSeconds, keepBytes, keepsMessages } = await withState(shell, group, async (state) => {
      return (await state.status()).statement
    })
    return { historyFor, keepSeconds, keepBytes, keepsMessages }
  } catch (error) {
    if ((error as { code?: string }).code === 'space_unknown') return {}
    throw error
  }
}

function showCommand(run: RunAction): Command {
  return new Command('show')
    .description('Print the settings and the size of a space, and the members that lack its keys')
    .option(...GROUP_OPTION)
    .addHelpText('after', examples('sealpost space show', 'sealpost space show --group crew --json'))
    .action(run((shell, { group }: { group?: string }) => show(shell, group)))
}

async function show(shell: Shell, group: string | undefined): Promise<void> {
  const status = await withState(shell, group, (state) => state.maintainKeys())
  const { statement, keyEpoch, lastSeq, entries, entryBytes, historyBytes, horizonUs, memberCount, lacking } = status
  const { spaceId, owner, epoch, historyFor, keepSeconds, keepBytes, keepsMessages } = statement
  const terms = { space: spaceId, owner, epoch, historyFor, keepSeconds, keepBytes, keepsMessages }
  const facts = { keyEpoch, events: lastSeq, entries, entryBytes, historyBytes, members: memberCount }
  const horizon = horizonUs === null ? null : instantText(horizonUs)
  const waiting = lacking.map(({ peer }) => peer)
  await shell.output.result({ ...terms, ...facts, horizon, lacking: waiting }, () =>
    shell.output.facts(factsOf(status)),
  )
}

const HISTORY_FOR = {
  none: 'nobody: only current values are kept',
  joined: 'members who had joined by then',
  all: 'every member, including later ones',
} as const

function factsOf({ statement, ...status }: SpaceStatus): [string, string][] {
  const { spaceId, historyFor, keepSeconds, keepBytes, keepsMessages } = statement
  const { entries, entryBytes, historyBytes, horizonUs, memberCount, lacking, keyEpoch } = status
  const days = Math.round(keepSeconds / 8640) / 10
  const kept = historyFor === 'none' ? 'not at all' : `${days} days, ${sizeText(keepBytes)} at most`
  return [
    ['space', spaceId],
    ['history for', HISTORY_FOR[historyFor]],
    ['kept', kept],
    ['messages', keepsMessages ? 'those that are sent with --keep' : 'none'],
    ['entries', `${entries}, ${sizeText(entryBytes)}`],
    ['history', `${sizeText(historyBytes)}${horizonUs === null ? '' : `, from ${instantText(horizonUs)} on`}`],
    ['key', `number ${keyEpoch}, with ${memberCount - lacking.length} of ${memberCount} members`],
  ]
}

const UNITS = ['B', 'KB', 'MB', 'GB', 'TB'] as const

/** Parses `500MB`, `10GB` or plain bytes. */
function size(text: string): number {
  const [, digits, unit = 'B'] = /^(\d{1,9})(B|KB|MB|GB|TB)?$/i.exec(text) ?? []
  if (digits === undefined || Number(digits) === 0) throw new InvalidArgumentError('Use a size such as 500MB or 10GB.')
  return Number(digits) * 1024 ** UNITS.indexOf(unit.toUpperCase() as (typeof UNITS)[number])
}

function sizeText(bytes: number): string {
  const power = bytes < 1 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log2(bytes) / 10))
  return `${Math.round((bytes / 1024 ** power) * 10) / 10} ${UNITS[power]}`
}
