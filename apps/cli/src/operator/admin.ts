/** `sealpost admin`: for operators, all of what the operators' interface of a broker can do. */
import * as shapes from '@sealpost/operator'
import { Command } from 'commander'
import { z } from 'zod'
import { examples, type RunAction, type Shell } from '../completion.ts'
import { callAdmin, parseHex, tokenCommand } from './admin-api.ts'
import { adminDeadCommand } from './dead-letters.ts'
import { keptCommand, quotasCommand } from './usage.ts'
import { viewCommands } from './views.ts'

export function adminCommand(run: RunAction): Command {
  const admin = new Command('admin')
    .description('for operators: see whether mail flows, and steer it; needs SEALPOST_ADMIN_URL and a token')
    .addHelpText(
      'after',
      `
On the machine of \`sealpost up\` neither is needed: it leaves both in its folder.
${examples('sealpost admin overview', 'sealpost admin console', 'sealpost admin token create grafana')}`,
    )
  for (const command of [
    ...viewCommands(run),
    keptCommand(run),
    quotasCommand(run),
    ...changeCommands(run),
    adminDeadCommand(run),
    tokenCommand(run),
  ])
    admin.addCommand(command)
  return admin
}

export function changeCommands(run: RunAction): Command[] {
  const example = (...lines: string[]) => examples(...lines.map((line) => `sealpost admin ${line}`))
  return [
    new Command('revoke-peer')
      .description('end a membership for good, with those of its devices; live sessions end at once')
      .argument('<MESH>', 'the ID of the mesh', parseHex(16))
      .argument('<KEY>', 'the key of the peer', parseHex(32))
      .addHelpText('after', example(`revoke-peer ${'01'.repeat(16)} ${'ab'.repeat(32)}`))
      .action(run(revokePeer)),
    new Command('revoke-invite')
      .description('let nobody in by an invite any more, whether it was used or not')
      .argument('<MESH>', 'the ID of the mesh', parseHex(16))
      .argument('<ID>', 'the ID of the invite', parseHex(16))
      .addHelpText('after', example(`revoke-invite ${'01'.repeat(16)} ${'ab'.repeat(16)}`))
      .action(run(revokeInvite)),
  ]
}

async function revokePeer(shell: Shell, _: object, mesh: string, key: string): Promise<void> {
  const path = `/meshes/${mesh}/peers/${key}/revoke`
  const { peers } = await callAdmin(shell, { path, answer: shapes.Revoked, body: {} })
  await shell.output.result({ peers }, () => `${peers.length} revoked`)
}

async function revokeInvite(shell: Shell, _: object, mesh: string, id: string): Promise<void> {
  await callAdmin(shell, { path: `/meshes/${mesh}/invites/${id}/revoke`, answer: z.object({}), body: {} })
  await shell.output.result({ inviteId: id, isRevoked: true }, () => 'revoked')
}
