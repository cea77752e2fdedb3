/** `sealpost admin mesh create` and `invite` create a mesh and invite its admins, directly in the database. */

import { existsSync } from 'node:fs'
import {
  createInvite,
  generateSigningKeys,
  hash256,
  type Invite,
  isDialable,
  readInvite,
  readShardCertificate,
  ready,
  type SigningKeys,
} from '@sealpost/identity'
import type { Database } from '@sealpost/pg'
import { isChosenName, type MeshId, NAME_RULE, OperatingError, type PeerKey, tidyName } from '@sealpost/std'
import {
  addOperatorInvite,
  adoptRoot,
  createMeshWithInvite,
  findMeshRoot,
  listShards,
  type OperatorInvite,
} from '@sealpost/store'
import { Command } from 'commander'
import { newMeshId } from '../broker/up.ts'
import { escapeName, formatTime } from '../output.ts'
import { ensureRootKey, readRootKey } from '../profile/proofs.ts'
import { durationOption, parseHex } from '../settings.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { withDatabase } from './db.ts'

interface InviteOptions {
  readonly url?: string
  readonly expires: number
  /** The file of the mesh's root. */
  readonly rootKey?: string
}

const MESH = '0123456789abcdef0123456789abcdef'

export function createMeshCommand(run: RunAction): Command {
  return withInviteOptions(new Command('create'))
    .description(
      'Create a mesh and print the invite of its first admin. The command needs DATABASE_URL and a running broker.',
    )
    .argument('<NAME>', 'the name of the mesh for operators, 1 to 64 characters')
    .addHelpText(
      'after',
      examples('sealpost admin mesh create home', 'sealpost admin mesh create home --url ws://127.0.0.1:7450'),
    )
    .action(run(create))
}

export function inviteAdminCommand(run: RunAction): Command {
  return withInviteOptions(new Command('invite'))
    .description('Create another admin invite, for a mesh whose first invite expired or whose admins lost their keys')
    .argument('<MESH>', 'the id of the mesh (32 hex digits)', parseHex(16))
    .addHelpText('after', examples(`sealpost admin mesh invite ${MESH}`))
    .action(run(invite))
}

const withInviteOptions = (command: Command): Command =>
  command
    .option('--url <URL>', 'the URL of the broker in the invite; default: the PUBLIC_URL of a running broker')
    .addOption(durationOption('--expires <TIME>', 'how long the invite is valid, such as 2h or 7d', '24h'))
    .option(
      '--root-key <FILE>',
      'sign the invite with the root of the mesh in FILE, so that the admin is proven; create makes the file. Keep it offline.',
    )

async function create(shell: Shell, options: InviteOptions, text: string): Promise<void> {
  const name = tidyName(text)
  if (!isChosenName(name)) throw new OperatingError('name_malformed', `The name of a mesh must be ${NAME_RULE}.`)
  const meshId = newMeshId()
  const made = await withDatabase(shell, async (db) => {
    if (options.rootKey !== undefined && existsSync(options.rootKey))
      throw new OperatingError(
        'key_file_exists',
        `The file ${options.rootKey} already exists. Each mesh has a root of its own.`,
      )
    const root = options.rootKey === undefined ? null : await ensureRootKey(options.rootKey)
    const made = await makeInvite(db, { meshId, root }, options)
    if (await createMeshWithInvite(db, { meshId, name, invite: rowOf(made.invite) })) {
      if (root) await adoptRoot(db, { meshId, root: root.publicKey, replaces: null }, null)
      return made
    }
    throw new OperatingError(
      'mesh_exists',
      `A mesh named ${escapeName(name)} already exists. Create an invite to it with \`sealpost admin mesh invite ID\`.`,
    )
  })
  await print(shell, made, { name })
}

async function invite(shell: Shell, options: InviteOptions, mesh: string): Promise<void> {
  const meshId = mesh as MeshId
  const made = await withDatabase(shell, async (db) => {
    const root = options.rootKey === undefined ? null : await readRootKey(options.rootKey)
    if (root && root.publicKey !== (await findMeshRoot(db, meshId)).root)
      throw new OperatingError('root_differs', 'The key in --root-key is not the root of this mesh.')
    const made = await makeInvite(db, { meshId, root }, options)
    if (await addOperatorInvite(db, meshId, rowOf(made.invite))) return made
    throw new OperatingError('mesh_unknown', 'There is no mesh with this id.')
  })
  await print(shell, made, {})
}

interface Made {
  readonly text: string
  readonly invite: Invite
}

/** Creates an invite signed with the root or a one-time key, valid because of its row. */
async function makeInvite(
  db: Database,
  { meshId, root }: { meshId: MeshId; root: SigningKeys | null },
  options: InviteOptions,
): Promise<Made> {
  await ready()
  const text = createInvite(root ?? generateSigningKeys(), {
    ...(await findBroker(db, options.url)),
    meshId,
    notAfterMs: Date.now() + options.expires * 1000,
    usesMax: 1,
    role: 'admin',
  })
  return { text, invite: readInvite(text) }
}

const rowOf = ({ inviteId, bytes, usesMax, notAfterMs }: Invite): OperatorInvite => ({
  inviteId,
  hash: hash256(bytes),
  usesMax,
  notAfterMs,
})

/**
 * Returns the key to pin and the address to dial. @throws OperatingError `usage`, `broker_not_running`,
 * `broker_keys_differ`
 */
async function findBroker(db: Database, asked: string | undefined): Promise<{ url: string; brokerKey: PeerKey }> {
  if (asked !== undefined && !isDialable(asked))
    throw new OperatingError('usage', '--url must be a URL such as wss://broker.example or ws://127.0.0.1:7450.')
  const alive = (await listShards(db)).filter(({ leaseMs }) => leaseMs > 0)
  const [brokerKey, ...others] = new Set(alive.map(clusterKeyOf))
  if (!brokerKey)
    throw new OperatingError('broker_not_running', 'No broker is running on this database. Start one: the invite contains its key.') // biome-ignore format: one thing
  if (others.length > 0)
    throw new OperatingError('broker_keys_differ', 'The brokers on this database have different keys, and peers can pin only one of them.') // biome-ignore format: one thing
  const url = asked ?? alive.find((shard) => shard.url !== null)?.url
  if (url) return { url, brokerKey }
  throw new OperatingError('usage', 'No broker has a PUBLIC_URL. Set the URL that peers dial with --url, such as ws://127.0.0.1:7450.') // biome-ignore format: one thing
}

function clusterKeyOf({ brokerKey, certificate }: { brokerKey: PeerKey; certificate: Uint8Array | null }): PeerKey {
  return (certificate && readShardCertificate(certificate)?.clusterKey) || brokerKey
}

async function print({ output }: Shell, { text, invite }: Made, more: { name?: string }): Promise<void> {
  const { inviteId, meshId, url, brokerKey, role, usesMax, notAfterMs } = invite
  const facts = { invite: text, inviteId, meshId, ...more, url, brokerKey, role, usesMax, notAfterMs }
  await output.result(facts, () => text)
  output.info(`admits one admin to the mesh ${meshId} at ${escapeName(url)} until ${formatTime(notAfterMs)} UTC`)
  output.info(`to join:   sealpost join ${text.slice(0, 14)}…`)
}
