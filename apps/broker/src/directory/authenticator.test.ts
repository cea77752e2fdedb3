import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  generateSigningKeys,
  ready,
  type ShardCertificateTerms,
  type SigningKeys,
  shardCertificateText,
  signShardCertificate,
} from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openLog } from '../telemetry/log.ts'
import { temporaryFolder } from '../test/world.ts'
import { readBrokerKeys } from './authenticator.ts'

const FAR_MS = 4_000_000_000_000
const PUBLIC_URL = 'wss://shard-1.example'
const log = openLog('silent')
let folder: string
let cluster: SigningKeys
let shard: SigningKeys
beforeAll(async () => {
  await ready()
  folder = await temporaryFolder()
  cluster = generateSigningKeys()
  shard = generateSigningKeys()
  await writeKeyFile(join(folder, 'shard.json'), { kind: 'broker', signing: shard })
})
afterAll(() => rm(folder, { recursive: true }))

const BROKER_KEY_FILE = () => join(folder, 'shard.json')
async function certificateFile(changed: Partial<ShardCertificateTerms> = {}, cut = 0): Promise<string> {
  const path = join(folder, crypto.randomUUID())
  const terms = { shardKey: shard.publicKey, authorities: ['shard-1.example:443'], notAfterMs: FAR_MS, ...changed }
  await writeFile(path, shardCertificateText(signShardCertificate(cluster, terms)).slice(cut))
  return path
}
const read = (BROKER_CERTIFICATE_FILE: string) =>
  readBrokerKeys({ BROKER_KEY_FILE: BROKER_KEY_FILE(), BROKER_CERTIFICATE_FILE, PUBLIC_URL }, log)

test("without a certificate the broker's key is the pinned one", async () => {
  expect(await read('')).toEqual({ ...shard, clusterKey: shard.publicKey, certificate: null })
})

test('with a certificate the pinned key is the one that signed it', async () => {
  expect(await read(await certificateFile())).toMatchObject({ ...shard, clusterKey: cluster.publicKey })
})

test.each([
  ['certificate_malformed', 'one that was cut', () => certificateFile({}, 1)],
  ['certificate_foreign', 'that of another key', () => certificateFile({ shardKey: cluster.publicKey })],
  ['certificate_foreign', 'that of another name', () => certificateFile({ authorities: ['shard-2.example:443'] })],
  ['certificate_expired', 'one that has had its time', () => certificateFile({ notAfterMs: 1_700_000_000_000 })],
  ['certificate_unreadable', 'none', async () => join(folder, 'absent')],
] as const)('%s: no peer would accept %s', async (code, _, file) => {
  await expect(read(await file())).rejects.toMatchObject({ code })
})
