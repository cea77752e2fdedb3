/** `sealpost admin kept`: what is kept of a mesh beside its mail. */
import * as shapes from '@sealpost/operator'
import { binaryBytes } from '@sealpost/operator/texts'
import { Command } from 'commander'
import { examples, type RunAction, type Shell } from '../completion.ts'
import { callAdmin, formatAge, formatTime, nameOrFingerprint, parseHex } from './admin-api.ts'

const MESH = '0123456789abcdef0123456789abcdef'

export function keptCommand(run: RunAction): Command {
  return new Command('kept')
    .description('what is kept of a mesh beside its mail: values, history, snapshots and files')
    .argument('<MESH>', 'its ID, 32 hex digits', parseHex(16))
    .addHelpText('after', examples(`sealpost admin kept ${MESH}`, `sealpost admin kept ${MESH} --json`))
    .action(run(kept))
}

async function kept(shell: Shell, _: object, meshId: string): Promise<void> {
  const { output } = shell
  const found = await callAdmin(shell, { path: `/meshes/${meshId}/kept`, answer: shapes.StorageReport })
  const { files, bytes, unfinished } = found.attachments
  const facts = output.facts([['files', `${files}, ${binaryBytes(bytes)}; ${unfinished} of them not complete`]])
  await output.result(found, () =>
    found.spaces.length === 0 ? `no state and no history\n${facts}` : `${spaceTable(output, found.spaces)}\n${facts}`,
  )
}

function spaceTable(output: Shell['output'], spaces: readonly shapes.SpaceReport[]): string {
  const rows = spaces.map((space) => [
    ...[space.kind, space.spaceId, nameOrFingerprint(space.ownerName, space.owner)],
    ...[String(space.entries), binaryBytes(space.entryBytes)],
    ...(space.keptSinceMs === null ? ['none', '', ''] : keptOf(space)),
    space.snapshot ? formatAge(space.snapshot.ageMs) : '',
  ])
  const head = ['SPACE', 'ID', 'OWNER', 'VALUES', 'SIZE', 'HISTORY', 'SINCE (UTC)', 'DAYS', 'SNAPSHOT AGE']
  return output.table(head, rows)
}

const keptOf = ({ historyBytes, historyBytesMax, keptSinceMs, days }: shapes.SpaceReport): string[] => [
  `${binaryBytes(historyBytes)} of ${binaryBytes(historyBytesMax)}`,
  formatTime(keptSinceMs),
  String(days),
]

export function quotasCommand(run: RunAction): Command {
  return new Command('quotas')
    .description('the limits of a mesh, its mailboxes, senders and owners: what is used, by whom most, and of how much')
    .argument('<MESH>', 'its ID, 32 hex digits', parseHex(16))
    .addHelpText('after', examples(`sealpost admin quotas ${MESH}`, `sealpost admin quotas ${MESH} --json`))
    .action(run(quotas))
}

async function quotas({ output, ...shell }: Shell, _: object, meshId: string): Promise<void> {
  const path = `/meshes/${meshId}/quotas`
  const found = (await callAdmin({ output, ...shell }, { path, answer: shapes.QuotaList })).quotas
  await output.results(found, () =>
    output.table(['QUOTA', 'USED', 'LIMIT', 'SHARE', 'SETTING', 'OF'], found.map(rowOf)),
  )
}

function rowOf({ name, used, max, setting, peerKey }: shapes.Quota): string[] {
  const amount = name.endsWith('bytes') ? binaryBytes : String
  const [limit, share] = max === null ? ['none', ''] : [amount(max), `${Math.round((used / max) * 100)} %`]
  return [name.replaceAll('_', ' '), amount(used), limit, share, setting, peerKey ?? '']
}
