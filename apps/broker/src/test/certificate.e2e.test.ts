/** Tests a shard with its own key: peers that pinned the cluster's key accept the shard by its certificate. */
import { rm, writeFile } from 'node:fs/promises'
import { join as pathOf } from 'node:path'
import {
  createInvite,
  generateIdentity,
  generateSigningKeys,
  ready,
  type SigningKeys,
  shardCertificateText,
  signShardCertificate,
} from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { connect } from '@sealpost/sdk'
import { join } from '@sealpost/sdk/join'
import { pinMesh } from '@sealpost/store'
import { expect, onTestFinished, test } from 'vitest'
import { placeAt } from './cluster.ts'
import { type BrokerProcess, until } from './process.ts'
import { authFrame, WireClient } from './wire.ts'
import { brokerKeyFile, type Place, temporaryFolder, World } from './world.ts'

const FAR_MS = 4_000_000_000_000
const DIALABLE = { PUBLIC_URL: 'ws://127.0.0.1:0' }

async function clusterKey(folder: string): Promise<{ path: string; signing: SigningKeys }> {
  await ready()
  const path = pathOf(folder, 'cluster.json')
  const signing = generateSigningKeys()
  await writeKeyFile(path, { kind: 'broker', signing })
  return { path, signing }
}

/** Starts a shard with a certificate, which contains the port. */
async function certifiedShard(world: World, cluster: SigningKeys, folder: string): Promise<BrokerProcess> {
  const keyed = { ...DIALABLE, BROKER_KEY_FILE: await brokerKeyFile(folder) }
  const before = await world.secondShard(keyed)
  await before.kill()
  const terms = { shardKey: before.key, authorities: [before.authority], notAfterMs: FAR_MS }
  const path = pathOf(folder, 'shard.cert')
  await writeFile(path, shardCertificateText(signShardCertificate(cluster, terms)))
  const place = { PORT: String(before.port), PUBLIC_URL: before.shardUrl }
  return world.secondShard({ ...keyed, ...place, BROKER_CERTIFICATE_FILE: path })
}

/** Returns where the first broker redirects this peer, if anywhere. */
async function homeOf(place: Place): Promise<string | null> {
  const client = await WireClient.open(place.url)
  client.send(authFrame(place, await client.next('hello')))
  const answer = await client.next('welcome', 'moved')
  client.destroy()
  return answer.type === 'moved' ? answer.url : null
}

test('peers follow a redirect to it and dial it directly, and it admits new members', async () => {
  const folder = await temporaryFolder()
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  const { path, signing } = await clusterKey(folder)
  await using world = await World.open({ ...DIALABLE, BROKER_KEY_FILE: path })
  const shard = await certifiedShard(world, signing, folder)
  expect(shard.key).not.toBe(signing.publicKey)
  const admin = await world.enrolAdmin('ann')
  await pinMesh(world.db, world.meshId, shard.authority)
  await until('it is the home', async () => (await homeOf(admin)) === shard.shardUrl)
  const seen: string[] = []
  await using followed = await connect({ ...admin, onEvent: ({ type }) => void seen.push(type) })
  expect(seen[0]).toBe('moved')
  expect(['connected', 'moved']).toContain(seen[1]) // A shard that has not read the pin may redirect back.
  const { brokerKey, meshId, identity } = placeAt(shard, admin)
  const invite = createInvite(identity.signing, { url: shard.shardUrl, brokerKey, meshId })
  const newMember = generateIdentity()
  expect(await join({ invite, identity: newMember })).toMatchObject({ brokerKey })
  await using dialled = await connect({ url: shard.shardUrl, brokerKey, meshId, identity: newMember })
  const heard = new Promise((resolve) => followed.onMessage((message) => resolve(message.text())))
  await dialled.send(followed.key, 'hello')
  expect(await heard).toBe('hello')
})
