/** `sealpost admin …`: what operators change, each with its line in the audit. */
import * as shapes from '@sealpost/operator'
import { OperatingError } from '@sealpost/std'
import { Command } from 'commander'
import { z } from 'zod'
import { askAdmin } from '../../admin-call.ts'
import { examples, type Run, type Shell } from '../../shell.ts'
import { escapeName } from '../../terminal-text.ts'
import { duration, timeOption, whole } from '../../words.ts'
import { hex, instant, named } from './words.ts'

interface Chosen {
  readonly mesh?: string
  readonly to?: string
  readonly reason?: string
  readonly olderThan?: number
}

export function changeCommands(run: Run): Command[] {
  const example = (...lines: string[]) => examples(...lines.map((line) => `sealpost admin ${line}`))
  return [
    new Command('revoke-peer')
      .description('end a membership for good, with those of its devices; live sessions end at once')
      .argument('<MESH>', 'the ID of the mesh', hex(16))
      .argument('<KEY>', 'the key of the peer', hex(32))
      .addHelpText('after', example(`revoke-peer ${'01'.repeat(16)} ${'ab'.repeat(32)}`))
      .action(run(revokePeer)),
    new Command('revoke-invite')
      .description('let nobody in by an invite any more, whether it was used or not')
      .argument('<MESH>', 'the ID of the mesh', hex(16))
      .argument('<ID>', 'the ID of the invite', hex(16))
      .addHelpText('after', example(`revoke-invite ${'01'.repeat(16)} ${'ab'.repeat(16)}`))
      .action(run(revokeInvite)),
    filtered(new Command('dead'))
      .description('list dead letters, the latest first')
      .option('--limit <N>', 'how many at most', whole(1, 1000), 100)
      .addHelpText('after', example('dead', 'dead --reason strikes --json'))
      .action(run(dead)),
    filtered(new Command('redrive'))
      .description('put dead letters back at the end of their queues')
      .argument('[ID...]', 'which ones, as `admin dead` names them')
      .option('--all', 'every one that the options leave')
      .addOption(timeOption('--ttl <TIME>', 'how long the broker keeps them now', '14d'))
      .addHelpText('after', example('redrive 1048577', 'redrive --all --reason strikes'))
      .action(run(redrive)),
    filtered(new Command('purge'))
      .description('throw dead letters away for good')
      .argument('[ID...]', 'which ones, as `admin dead` names them')
      .option('--all', 'every one that the options leave')
      .addHelpText('after', example('purge 1048577', 'purge --all --older-than 30d'))
      .action(run(purge)),
  ]
}

const filtered = (command: Command): Command =>
  command
    .option('--mesh <ID>', 'only of this mesh, 32 hex digits', hex(16))
    .option('--to <KEY>', 'only for this recipient, 64 hex digits', hex(32))
    .option('--reason <REASON>', 'only with this reason: expired, strikes or rejected')
    .option('--older-than <TIME>', 'only those dead for so long, like 30d', duration)

const filterOf = ({ mesh, to, reason, olderThan }: Chosen) => ({
  meshId: mesh,
  recipient: to,
  reason,
  olderThanSeconds: olderThan,
})

async function revokePeer(shell: Shell, _: object, mesh: string, key: string): Promise<void> {
  const path = `/meshes/${mesh}/peers/${key}/revoke`
  const { peers } = await askAdmin(shell, { path, answer: shapes.Revoked, body: {} })
  await shell.output.answer({ peers }, () => `${peers.length} revoked`)
}

async function revokeInvite(shell: Shell, _: object, mesh: string, id: string): Promise<void> {
  await askAdmin(shell, { path: `/meshes/${mesh}/invites/${id}/revoke`, answer: z.object({}), body: {} })
  await shell.output.answer({ inviteId: id, isRevoked: true }, () => 'revoked')
}

async function dead(shell: Shell, options: Chosen & { limit: number }): Promise<void> {
  const query = { ...filterOf(options), limit: options.limit }
  const { deadLetters } = await askAdmin(shell, { path: '/dead-letters', answer: shapes.DeadLetters, query })
  const rows = deadLetters.map((letter) => [
    ...[String(letter.id), instant(letter.diedAtMs), escapeName(letter.meshName), letter.reason],
    ...[named(letter.senderName, letter.sender), named(letter.recipientName, letter.recipient)],
    ...[String(letter.attempts), letter.bytes === null ? '' : String(letter.bytes)],
  ])
  await shell.output.answers(deadLetters, () =>
    rows.length === 0
      ? 'no dead letters'
      : shell.output.table(['ID', 'DIED (UTC)', 'MESH', 'REASON', 'FROM', 'TO', 'ATTEMPTS', 'BYTES'], rows),
  )
}

async function redrive(shell: Shell, options: Chosen & { all?: boolean; ttl: number }, ids: string[]): Promise<void> {
  const body = { ...chosen(ids, options), ttlSeconds: options.ttl }
  const done = await askAdmin(shell, { path: '/dead-letters/redrive', answer: shapes.Redriven, body })
  await shell.output.answer(done, () => `${done.redriven} put back, ${done.left} left as they are`)
}

async function purge(shell: Shell, options: Chosen & { all?: boolean }, ids: string[]): Promise<void> {
  const body = chosen(ids, options)
  const done = await askAdmin(shell, { path: '/dead-letters/purge', answer: shapes.Purged, body })
  await shell.output.answer(done, () => `${done.purged} thrown away`)
}

/** Nobody loses all of them by forgetting a word. @throws OperatingError `usage` */
function chosen(ids: readonly string[], options: Chosen & { all?: boolean }): object {
  if (ids.length > 0 === (options.all === true) || !ids.every((id) => /^\d{1,16}$/.test(id)))
    throw new OperatingError('usage', 'Name the dead letters by their IDs, or say --all; not both.')
  return { ...filterOf(options), ...(options.all ? { all: true } : { ids: ids.map(Number) }) }
}
