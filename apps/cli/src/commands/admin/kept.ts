/** `sealpost admin kept`: what is kept of a mesh beside its mail. */
import * as shapes from '@sealpost/operator'
import { binaryBytes } from '@sealpost/operator/units'
import { Command } from 'commander'
import { askAdmin } from '../../admin-call.ts'
import { examples, type Run, type Shell } from '../../shell.ts'
import { age, hex, instant, named } from './words.ts'

const MESH = '0123456789abcdef0123456789abcdef'

export function keptCommand(run: Run): Command {
  return new Command('kept')
    .description('what is kept of a mesh beside its mail: values, history, snapshots and files')
    .argument('<MESH>', 'its ID, 32 hex digits', hex(16))
    .addHelpText('after', examples(`sealpost admin kept ${MESH}`, `sealpost admin kept ${MESH} --json`))
    .action(run(kept))
}

async function kept(shell: Shell, _: object, meshId: string): Promise<void> {
  const { output } = shell
  const found = await askAdmin(shell, { path: `/meshes/${meshId}/kept`, answer: shapes.Kept })
  const { files, bytes, unfinished } = found.attachments
  const facts = output.facts([['files', `${files}, ${binaryBytes(bytes)}; ${unfinished} of them not complete`]])
  await output.answer(found, () =>
    found.spaces.length === 0 ? `no state and no history\n${facts}` : `${spaceTable(output, found.spaces)}\n${facts}`,
  )
}

function spaceTable(output: Shell['output'], spaces: readonly shapes.Space[]): string {
  const rows = spaces.map((space) => [
    ...[space.kind, space.spaceId, named(space.ownerName, space.owner)],
    ...[String(space.entries), binaryBytes(space.entryBytes)],
    ...(space.keptSinceMs === null ? ['none', '', ''] : keptOf(space)),
    space.snapshot ? age(space.snapshot.ageMs) : '',
  ])
  const head = ['SPACE', 'ID', 'OWNER', 'VALUES', 'SIZE', 'HISTORY', 'SINCE (UTC)', 'DAYS', 'SNAPSHOT AGE']
  return output.table(head, rows)
}

const keptOf = ({ historyBytes, historyBytesMax, keptSinceMs, days }: shapes.Space): string[] => [
  `${binaryBytes(historyBytes)} of ${binaryBytes(historyBytesMax)}`,
  instant(keptSinceMs),
  String(days),
]
