/** `sealpost admin`: for operators, all of what the operators' interface of a broker can do. */
import { Command } from 'commander'
import { examples, type Run } from '../../shell.ts'
import { changeCommands } from './changes.ts'
import { adminDeadCommand } from './dead.ts'
import { keptCommand } from './kept.ts'
import { quotasCommand } from './quotas.ts'
import { tokenCommand } from './token.ts'
import { viewCommands } from './views.ts'

export function adminCommand(run: Run): Command {
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
