/** `sealpost admin …`: what operators change, each with its line in the audit. */
import * as shapes from '@sealpost/operator'
import { Command } from 'commander'
import { z } from 'zod'
import { askAdmin } from '../../admin-call.ts'
import { examples, type Run, type Shell } from '../../shell.ts'
import { hex } from './words.ts'

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
  ]
}

async function revokePeer(shell: Shell, _: object, mesh: string, key: string): Promise<void> {
  const path = `/meshes/${mesh}/peers/${key}/revoke`
  const { peers } = await askAdmin(shell, { path, answer: shapes.Revoked, body: {} })
  await shell.output.answer({ peers }, () => `${peers.length} revoked`)
}

async function revokeInvite(shell: Shell, _: object, mesh: string, id: string): Promise<void> {
  await askAdmin(shell, { path: `/meshes/${mesh}/invites/${id}/revoke`, answer: z.object({}), body: {} })
  await shell.output.answer({ inviteId: id, isRevoked: true }, () => 'revoked')
}
