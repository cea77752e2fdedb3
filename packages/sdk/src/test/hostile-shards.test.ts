/**
 * Tests over real WebSockets which shards a peer trusts, by redirect or by address. An impostor can only end the
 * connection (security model 3.3).
 */
import {
  generateIdentity,
  generateSigningKeys,
  ready,
  type SigningKeys,
  signShardCertificate,
} from '@sealpost/identity'
import { beforeAll, describe, expect, test } from 'vitest'
import { connect } from '../client.ts'
import type { ShardRefusal } from '../connection/addresses.ts'
import { events } from './client.ts'
import { ServedBroker } from './hostile.ts'

beforeAll(() => ready())

const FAR_MS = 4_000_000_000_000
const NONE = new Uint8Array()

/** A shard that redirects every peer except those that report the target as unreachable. */
class Scene implements AsyncDisposable {
  readonly cluster = new ServedBroker()
  readonly home = new ServedBroker()
  readonly identity = generateIdentity()
  readonly told = events()
  certificate: Uint8Array = NONE

  constructor() {
    for (const broker of [this.cluster, this.home]) broker.enrol(this.identity)
    this.cluster.intercept = (socket, frame) => {
      if (frame.type !== 'auth' || frame.capabilities.length > 0) return false
      const { url } = this.home
      socket.say({ type: 'moved', url, certificate: this.certificate, proof: this.cluster.proofFor(socket, frame) })
      return true
    }
  }

  /** Returns the home's certificate, with some fields changed. */
  certify(changed: Partial<{ by: SigningKeys; shardKey: SigningKeys; authority: string; notAfterMs: number }> = {}) {
    const { by = this.cluster.keys, shardKey = this.home.keys, notAfterMs = FAR_MS } = changed
    const { authority = new URL(this.home.url).host } = changed
    return signShardCertificate(by, { shardKey: shardKey.publicKey, authorities: [authority], notAfterMs })
  }

  enter({ url }: ServedBroker = this.cluster) {
    const { meshId, keys } = this.cluster
    const { onEvent } = this.told
    return connect({ url, meshId, brokerKey: keys.publicKey, identity: this.identity, onEvent })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.cluster[Symbol.asyncDispose]()
    await this.home[Symbol.asyncDispose]()
  }
}

const flipped = (bytes: Uint8Array) => bytes.with(50, bytes[50]! ^ 1)

const impostors: { home: string; reason: ShardRefusal; certificate?: (scene: Scene) => Uint8Array }[] = [
  { home: 'has a different key and no certificate', reason: 'wrong_key' },
  {
    home: 'has a certificate of another cluster',
    reason: 'certificate_foreign',
    certificate: (scene) => scene.certify({ by: generateSigningKeys() }),
  },
  {
    home: 'signs its own certificate',
    reason: 'certificate_foreign',
    certificate: (scene) => scene.certify({ by: scene.home.keys }),
  },
  {
    home: 'has the certificate of another shard',
    reason: 'certificate_foreign',
    certificate: (scene) => scene.certify({ shardKey: generateSigningKeys() }),
  },
  {
    home: 'is dialled under a name that is not its own',
    reason: 'certificate_foreign',
    certificate: (scene) => scene.certify({ authority: 'shard.example:443' }),
  },
  {
    home: 'has an expired certificate',
    reason: 'certificate_expired',
    certificate: (scene) => scene.certify({ notAfterMs: 1_700_000_000_000 }),
  },
  {
    home: 'has a certificate with one bit changed',
    reason: 'certificate_forged',
    certificate: (scene) => flipped(scene.certify()),
  },
]

describe.each(['moved', 'certificate'] as const)('with the certificate in `%s`, a home that', (by) => {
  const use = (scene: Scene, certificate: Uint8Array) => {
    if (by === 'moved') scene.certificate = certificate
    else scene.home.certificate = certificate
  }

  test.each(impostors)('has no valid certificate is rejected: it $home ($reason)', async ({ reason, certificate }) => {
    await using scene = new Scene()
    if (certificate) use(scene, certificate(scene))
    await using peer = await scene.enter()
    expect(scene.told.all('shard_refused')).toEqual([{ type: 'shard_refused', url: scene.home.url, reason }])
    expect(scene.home.heard).toEqual([])
    expect([...scene.cluster.sockets].map((socket) => socket.peer)).toContain(peer.key)
  })

  test('has a valid one is trusted', async () => {
    await using scene = new Scene()
    use(scene, scene.certify())
    await using peer = await scene.enter()
    expect([...scene.home.sockets].map((socket) => socket.peer)).toEqual([peer.key])
    expect(scene.told.all('shard_refused')).toEqual([])
  })
})

test("a home that names the cluster's key but does not hold it is rejected: proof_forged", async () => {
  await using scene = new Scene()
  const { home, cluster } = scene
  const greet = home.hello.bind(home)
  home.hello = (socket) => ({ ...greet(socket), brokerKey: cluster.keys.publicKey })
  home.intercept = (socket, frame) => {
    if (frame.type === 'auth') socket.say(home.welcome(new Uint8Array(64)))
    return true
  }
  await using peer = await scene.enter()
  expect(scene.told.all('shard_refused')).toMatchObject([{ reason: 'proof_forged' }])
  expect(peer.isOnline).toBe(true)
})

test('a home that has not proven its key cannot close a peer', async () => {
  await using scene = new Scene()
  scene.home.certificate = scene.certify()
  scene.home.intercept = (socket) => {
    socket.refuse('revoked')
    return true
  }
  await using peer = await scene.enter()
  expect(scene.told.all('disconnected')).toMatchObject([{ code: 'revoked' }])
  expect(peer.isOnline).toBe(true)
})

test('a shard that is dialled directly shows its certificate', async () => {
  await using scene = new Scene()
  scene.home.certificate = scene.certify()
  await using peer = await scene.enter(scene.home)
  expect(peer.isOnline).toBe(true)
  scene.home.certificate = flipped(scene.certify())
  await expect(scene.enter(scene.home)).rejects.toMatchObject({ code: 'wrong_broker', isRetryable: false })
})
