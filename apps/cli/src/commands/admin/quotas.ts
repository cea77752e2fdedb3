/** `sealpost admin quotas`: what is limited in a mesh, how much of it is used, and by whom most. */
import * as shapes from '@sealpost/operator'
import { binaryBytes } from '@sealpost/operator/units'
import { Command } from 'commander'
import { askAdmin } from '../../admin-call.ts'
import { examples, type Run, type Shell } from '../../shell.ts'
import { hex } from './words.ts'

const MESH = '0123456789abcdef0123456789abcdef'

export function quotasCommand(run: Run): Command {
  return new Command('quotas')
    .description('the limits of a mesh, its mailboxes, senders and owners: what is used, by whom most, and of how much')
    .argument('<MESH>', 'its ID, 32 hex digits', hex(16))
    .addHelpText('after', examples(`sealpost admin quotas ${MESH}`, `sealpost admin quotas ${MESH} --json`))
    .action(run(quotas))
}

async function quotas({ output, ...shell }: Shell, _: object, meshId: string): Promise<void> {
  const path = `/meshes/${meshId}/quotas`
  const found = (await askAdmin({ output, ...shell }, { path, answer: shapes.Quotas })).quotas
  await output.answers(found, () =>
    output.table(['QUOTA', 'USED', 'LIMIT', 'SHARE', 'SETTING', 'OF'], found.map(rowOf)),
  )
}

function rowOf({ name, used, max, setting, peerKey }: shapes.Quota): string[] {
  const amount = name.endsWith('bytes') ? binaryBytes : String
  const [limit, share] = max === null ? ['none', ''] : [amount(max), `${Math.round((used / max) * 100)} %`]
  return [name.replaceAll('_', ' '), amount(used), limit, share, setting, peerKey ?? '']
}
