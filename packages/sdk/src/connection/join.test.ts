import {
  createInvite,
  generateIdentity,
  generateSigningKeys,
  type InviteTerms,
  normalizeAuthority,
  ready,
  signAsBroker,
  signShardCertificate,
  type Transcript,
} from '@sealpost/identity'
import { clientForms, type FrameOf } from '@sealpost/protocol'
import { beforeAll, expect, test } from 'vitest'
import { type BrokerSocket, TestingBroker } from '../test/broker.ts'
import { join } from './join.ts'

beforeAll(() => ready())

/** Returns a broker whose reply to `enrol` the test decides. */
function world(answer: (socket: BrokerSocket, enrol: FrameOf<'enrol'>) => void = () => undefined) {
  const broker = new TestingBroker()
  broker.intercept = (socket, frame) => {
    if (frame.type === 'enrol') answer(socket, frame)
    return true
  }
  const terms: InviteTerms = { meshId: broker.meshId, url: broker.url, brokerKey: broker.keys.publicKey }
  const options = (changed: Partial<InviteTerms> = {}) => ({
    invite: createInvite(generateSigningKeys(), { ...terms, ...changed }),
    identity: generateIdentity(),
    webSocket: broker.webSocket,
  })
  const proofFor = (socket: BrokerSocket, enrol: FrameOf<'enrol'>, keys = broker.keys) => {
    const { versions, nonce, connectionId, issuedAtMs } = broker.hello(socket)
    const transcript: Transcript = {
      version: enrol.version,
      versionsOffered: versions,
      authority: normalizeAuthority(socket.url),
      brokerKey: keys.publicKey,
      meshId: broker.meshId,
      peerKey: enrol.peerKey,
      serverNonce: nonce,
      clientNonce: enrol.clientNonce,
      connectionId,
      issuedAtMs,
      capabilities: [],
    }
    return signAsBroker(keys, transcript, enrol.signature)
  }
  const enrolled = (socket: BrokerSocket, enrol: FrameOf<'enrol'>, keys = broker.keys) =>
    socket.say({ type: 'enrolled', proof: proofFor(socket, enrol, keys), name: enrol.name })
  const moved = (socket: BrokerSocket, enrol: FrameOf<'enrol'>, url: string, keys = broker.keys) => {
    socket.say({ type: 'moved', url, certificate: new Uint8Array(), proof: proofFor(socket, enrol, keys) })
    socket.refuse('moved')
  }
  return { broker, options, enrolled, moved }
}

test('a membership contains what `connect` needs, and its default name comes from the key', async () => {
  const its = world((socket, enrol) => its.enrolled(socket, enrol))
  const options = its.options()
  const { url, meshId, keys } = its.broker
  const place = { url, meshId, brokerKey: keys.publicKey }
  const plain = await join(options)
  expect(plain).toEqual({ ...place, name: `peer-${options.identity.signing.publicKey.slice(0, 8)}` })
  expect(await join({ ...its.options(), name: 'alice', form: clientForms.json })).toEqual({ ...place, name: 'alice' })
  await expect.poll(() => its.broker.sockets.size).toBe(0)
})

test('a server that cannot prove the key of the invite is rejected, before and after the enrolment', async () => {
  const its = world((socket, enrol) => its.enrolled(socket, enrol, generateSigningKeys()))
  await expect(join(its.options())).rejects.toMatchObject({ code: 'wrong_broker' })
  const other = its.options({ brokerKey: generateSigningKeys().publicKey })
  const heard = its.broker.heard.length
  await expect(join(other)).rejects.toMatchObject({ code: 'wrong_broker' })
  expect(its.broker.heard.length).toBe(heard)
})

test('a shard with its own key is trusted through a certificate of the invite key', async () => {
  const its = world((socket, enrol) => its.enrolled(socket, enrol))
  const { broker } = its
  const cluster = generateSigningKeys()
  const terms = { authorities: ['broker.example:8440'], notAfterMs: 4_000_000_000_000 }
  const joined = () => join(its.options({ brokerKey: cluster.publicKey }))
  broker.certificate = signShardCertificate(cluster, { ...terms, shardKey: broker.keys.publicKey })
  expect(await joined()).toMatchObject({ brokerKey: cluster.publicKey })
  broker.certificate = signShardCertificate(cluster, { ...terms, shardKey: cluster.publicKey })
  await expect(joined()).rejects.toMatchObject({ code: 'wrong_broker' })
})

const HOME = 'ws://south.example:8440'

test('an enrolment follows a redirect to the new home of the mesh', async () => {
  const its = world((socket, enrol) =>
    socket.url.startsWith(HOME) ? its.enrolled(socket, enrol) : its.moved(socket, enrol, HOME),
  )
  expect(await join({ ...its.options(), name: 'alice' })).toMatchObject({ url: HOME, name: 'alice' })
})

test.each([
  ['in a cycle', (url: string) => (url.startsWith(HOME) ? 'ws://broker.example:8440' : HOME)],
  ['to an invalid address', () => 'ws://south.example/?secret'],
  ['to the current broker', (url: string) => url],
])('an enrolment does not follow a redirect %s', async (_, next) => {
  const its = world((socket, enrol) => its.moved(socket, enrol, next(socket.url)))
  await expect(join(its.options())).rejects.toMatchObject({ code: 'moved', isRetryable: true })
  expect(its.broker.heard.length).toBeLessThan(6)
})

test('a server that has not proven the key of the invite cannot redirect', async () => {
  const its = world((socket, enrol) => its.moved(socket, enrol, HOME, generateSigningKeys()))
  await expect(join(its.options())).rejects.toMatchObject({ code: 'wrong_broker' })
  expect(its.broker.heard).toHaveLength(1)
})

test.each(['invite_refused', 'already_member', 'name_taken', 'revoked'] as const)(
  'a refusal with `%s` becomes the error',
  async (code) => {
    const { options } = world((socket) => socket.refuse(code))
    await expect(join(options())).rejects.toMatchObject({ code, isRetryable: false })
  },
)

test('a close without a refusal frame is explained by its close code', async () => {
  const { options } = world((socket) => socket.cut(4410))
  await expect(join(options())).rejects.toMatchObject({ code: 'invite_refused' })
})

test('a connection that ends before the reply may be retried', async () => {
  const { options } = world((socket) => socket.cut(1006))
  await expect(join(options())).rejects.toMatchObject({ code: 'connection_lost', isRetryable: true })
})

test('another frame instead of the reply is refused', async () => {
  const { options } = world((socket) => socket.say({ type: 'pong', ref: 1 }))
  await expect(join(options())).rejects.toMatchObject({ code: 'frame_unexpected' })
})

test.each(['', 'x'.repeat(65), 'b\u043eb', 'two\nlines', 'bob (you)', 'a/b', '-bob'])(
  'the name %j is refused before any request',
  async (name) => {
    const { options, broker } = world()
    await expect(join({ ...options(), name })).rejects.toMatchObject({ code: 'name_malformed' })
    expect(broker.sockets.size).toBe(0)
  },
)

test('an invalid invite is refused before any request', async () => {
  const { options, broker } = world()
  const invite = options().invite.slice(0, -3)
  await expect(join({ ...options(), invite })).rejects.toMatchObject({ code: 'invite_malformed' })
  expect(broker.sockets.size).toBe(0)
})
