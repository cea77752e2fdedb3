/** `sealpost shard` lists the brokers on one database, pins meshes to them, and creates their keys and certificates. */
import {
  generateSigningKeys,
  normalizeAuthority,
  ready,
  type SigningKeys,
  shardCertificateText,
  signShardCertificate,
} from '@sealpost/identity'
import { readKeyFile, writeKeyFile } from '@sealpost/identity/key-file'
import { type MeshId, OperatingError } from '@sealpost/std'
import { type ListedShard, listPins, listShards, pinMesh, unpinMesh } from '@sealpost/store'
import { Command } from 'commander'
import { escapeName, type Output } from '../output.ts'
import { durationOption, parseHex } from '../settings.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { withDatabase } from './db.ts'

export function shardCommand(run: RunAction): Command {
  return new Command('shard')
    .description('For operators: manage the brokers on one database')
    .addCommand(listCommand(run))
    .addCommand(pinCommand(run))
    .addCommand(unpinCommand(run))
    .addCommand(keygenCommand(run))
    .addCommand(certifyCommand(run))
    .addHelpText(
      'after',
      examples(
        'sealpost shard list',
        `sealpost shard pin ${EXAMPLE_MESH} shard-1.example`,
        `sealpost shard unpin ${EXAMPLE_MESH}`,
      ),
    )
}

const EXAMPLE_MESH = '0192f3a45b6c7d8e9f0a1b2c3d4e5f60'

function listCommand(run: RunAction): Command {
  return new Command('list')
    .description(
      'List the brokers that are or recently were alive, and the meshes that are pinned to them. The command needs DATABASE_URL.',
    )
    .addHelpText('after', examples('sealpost shard list', 'sealpost shard list --json'))
    .action(run(list))
}

function pinCommand(run: RunAction): Command {
  return new Command('pin')
    .description(
      'Pin a mesh to a broker. The broker is the home of the mesh while the broker is alive. The command needs DATABASE_URL.',
    )
    .argument('<MESH>', 'the id of the mesh (32 hex digits)', parseHex(16))
    .argument('<SHARD>', 'the name of the broker, from `shard list`')
    .addHelpText('after', examples(`sealpost shard pin ${EXAMPLE_MESH} shard-1.example`))
    .action(run(pin))
}

function unpinCommand(run: RunAction): Command {
  return new Command('unpin')
    .description('Unpin a mesh, so that its id determines its home again. The command needs DATABASE_URL.')
    .argument('<MESH>', 'the id of the mesh (32 hex digits)', parseHex(16))
    .addHelpText('after', examples(`sealpost shard unpin ${EXAMPLE_MESH}`))
    .action(run(unpin))
}

function keygenCommand(run: RunAction): Command {
  return new Command('keygen')
    .description(
      'Generate the key with which the brokers of a cluster prove their identity, for BROKER_KEY_FILE, and print its public key',
    )
    .argument('<KEY-FILE>', 'the file to create; an existing file is never overwritten')
    .addHelpText('after', examples('sealpost shard keygen broker.json'))
    .action(run(keygen))
}

async function keygen({ output }: Shell, _options: object, file: string): Promise<void> {
  await ready()
  const signing = generateSigningKeys()
  await writeKeyFile(file, { kind: 'broker', signing })
  await output.result({ file, brokerKey: signing.publicKey }, () => signing.publicKey)
}

function certifyCommand(run: RunAction): Command {
  return new Command('certify')
    .description(
      "Print a certificate for a broker's own key, to use as BROKER_CERTIFICATE_FILE. If KEY-FILE does not exist, the command generates the key.",
    )
    .argument('<KEY-FILE>', "the file with the broker's own key (the broker's BROKER_KEY_FILE)")
    .requiredOption('--cluster-key <FILE>', 'the file with the cluster key, which peers have pinned')
    .requiredOption('--url <URL...>', 'the URLs at which peers connect to this broker (one to four)')
    .addOption(durationOption('--valid <TIME>', 'how long the certificate is valid', '90d'))
    .addHelpText(
      'after',
      examples(
        'sealpost shard certify shard-1.json --cluster-key cluster.json --url wss://shard-1.example > shard-1.cert',
      ),
    )
    .action(run(certify))
}

async function list(shell: Shell): Promise<void> {
  const { output } = shell
  const { shards, pins } = await withDatabase(shell, async (db) => ({
    shards: await listShards(db),
    pins: [...(await listPins(db))].map(([mesh, shard]) => ({ mesh, shard })),
  }))
  const forPrograms = shards.map(({ certificate, leaseMs, ...rest }) => ({
    ...rest,
    isAlive: leaseMs > 0,
    hasCertificate: certificate !== null,
    pinned: pins.filter(({ shard }) => shard === rest.name).map(({ mesh }) => mesh),
  }))
  await output.results(forPrograms, () => (shards.length === 0 ? 'no brokers' : tableOf(forPrograms, output)))
}

type Shown = Omit<ListedShard, 'certificate' | 'leaseMs'> & {
  readonly isAlive: boolean
  readonly pinned: readonly MeshId[]
}

function tableOf(shards: readonly Shown[], output: Output): string {
  const rows = shards.map(({ name, isAlive, epoch, url, pinned }) => [
    escapeName(name),
    isAlive ? 'alive' : 'gone',
    String(epoch),
    url === null ? '' : escapeName(url),
    pinned.join(' '),
  ])
  return output.table(['NAME', 'STATE', 'EPOCH', 'URL', 'PINNED'], rows)
}

async function pin(shell: Shell, _options: object, mesh: MeshId, shard: string): Promise<void> {
  const { isKnown, isPinned } = await withDatabase(shell, async (db) => ({
    isKnown: (await listShards(db)).some(({ name }) => name === shard),
    isPinned: await pinMesh(db, mesh, shard),
  }))
  if (!isPinned) throw new OperatingError('mesh_unknown', 'There is no mesh with this id.')
  if (!isKnown) shell.output.info(`no broker named ${escapeName(shard)} is alive; the pin takes effect when it starts`)
  await shell.output.result({ mesh, shard }, () => `pinned to ${escapeName(shard)}`)
}

async function unpin(shell: Shell, _options: object, mesh: MeshId): Promise<void> {
  const wasPinned = await withDatabase(shell, (db) => unpinMesh(db, mesh))
  await shell.output.result({ mesh, wasPinned }, () => (wasPinned ? 'unpinned' : 'the mesh was not pinned'))
}

interface CertifyOptions {
  readonly clusterKey: string
  readonly url: readonly string[]
  readonly valid: number
}

async function certify(shell: Shell, { clusterKey, url, valid }: CertifyOptions, keyFile: string): Promise<void> {
  await ready()
  if (url.length > 4) throw new OperatingError('usage', 'A certificate contains at most four URLs.')
  const authorities = url.map((address) => normalizeAuthority(address))
  const cluster = await brokerKeys(clusterKey)
  const { publicKey: shardKey } = await brokerKeys(keyFile).catch((error) => made(keyFile, error))
  const notAfterMs = Date.now() + valid * 1000
  const certificate = shardCertificateText(signShardCertificate(cluster, { shardKey, authorities, notAfterMs }))
  await shell.output.result({ certificate, shardKey, authorities, notAfterMs }, () => certificate)
}

async function brokerKeys(path: string): Promise<SigningKeys> {
  const { contents } = await readKeyFile(path)
  if (contents.kind === 'broker') return contents.signing
  throw new OperatingError('key_file_wrong_kind', `The file ${path} is not the key file of a broker.`)
}

async function made(path: string, error: { code?: string }): Promise<SigningKeys> {
  if (error.code !== 'key_file_missing') throw error
  const signing = generateSigningKeys()
  await writeKeyFile(path, { kind: 'broker', signing })
  return signing
}
