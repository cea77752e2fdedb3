/** `sealpost admin token`: who may use the operators' interface. It works on the database itself. */

import { type MeshId, OperatingError } from '@sealpost/std'
import { ADMIN_SCOPES, type AdminScope, addAdminToken, listAdminTokens, revokeAdminToken } from '@sealpost/store'
import { Command, Option } from 'commander'
import { durationOption } from '../args.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { escapeName } from '../terminal-text.ts'
import { withDatabase } from './db.ts'
import { formatTime, parseHex } from './format.ts'

interface CreateOptions {
  readonly scope: AdminScope
  readonly mesh?: MeshId
  readonly ttl: number
}

export function tokenCommand(run: RunAction): Command {
  return new Command('token')
    .description('tokens of operators; needs DATABASE_URL')
    .addHelpText('after', examples('sealpost admin token create grafana', 'sealpost admin token list'))
    .addCommand(createCommand(run))
    .addCommand(new Command('list').description('show them, without their secrets').addHelpText('after', examples('sealpost admin token list')).action(run(list))) // biome-ignore format: one thing
    .addCommand(
      new Command('revoke')
        .description('end one; brokers believe in it for three seconds more')
        .argument('<ID>', 'as `admin token list` shows it')
        .addHelpText('after', examples('sealpost admin token revoke 0123456789abcdef'))
        .action(run(revoke)),
    )
}

function createCommand(run: RunAction): Command {
  return new Command('create')
    .description('make one, and print it this once')
    .argument('<NAME>', 'what the audit calls it')
    .addOption(new Option('--scope <SCOPE>', 'read, or operate: it changes things, too').choices(ADMIN_SCOPES).default('read')) // biome-ignore format: one thing
    .option('--mesh <ID>', 'only for this mesh, 32 hex digits', parseHex(16))
    .addOption(durationOption('--ttl <TIME>', 'how long it is good', '30d'))
    .addHelpText(
      'after',
      examples('sealpost admin token create grafana', 'sealpost admin token create ada --scope operate --ttl 12h'),
    )
    .action(run(create))
}

async function create(shell: Shell, { scope, mesh, ttl }: CreateOptions, name: string): Promise<void> {
  const terms = { name, scope, meshId: mesh ?? null, ttlSeconds: ttl }
  const issued = await withDatabase(shell, (db) => addAdminToken(db, terms))
  await shell.output.result({ ...issued, name, scope, meshId: terms.meshId }, () => issued.token)
}

async function list(shell: Shell): Promise<void> {
  const tokens = await withDatabase(shell, listAdminTokens)
  const { output } = shell
  await output.results(tokens, () =>
    output.table(
      ['ID', 'NAME', 'SCOPE', 'MESH', 'UNTIL (UTC)', 'LAST USED (UTC)', ''],
      tokens.map(({ id, name, scope, meshId, expiresAtMs, lastUsedAtMs, isRevoked }) => [
        ...[id, escapeName(name), scope, meshId ?? 'all'],
        ...[formatTime(expiresAtMs), formatTime(lastUsedAtMs), isRevoked ? 'revoked' : ''],
      ]),
    ),
  )
}

async function revoke(shell: Shell, _: object, id: string): Promise<void> {
  const isThere = await withDatabase(shell, (db) => revokeAdminToken(db, id))
  if (!isThere) throw new OperatingError('token_unknown', 'There is no admin token of that ID.')
  await shell.output.result({ id, isRevoked: true }, () => 'revoked')
}
