/** H34 to H45: false identities. */
import { bindBoxKey, generateIdentity, type Identity } from '@sealpost/identity'
import type { MeshId, PeerKey } from '@sealpost/std'
import { addMembers } from '@sealpost/store'
import { revokeMember } from '@sealpost/store/testing'
import { type Arena, auth, authAnswer, authText, closing, hostileRows } from './hostile.ts'
import { authFrame, randomMesh, WireClient } from './wire.ts'

/** Points of order 1, 2, 4 and 8, under which at least every eighth message has one signature. */
const SMALL_ORDER = [
  `01${'00'.repeat(31)}`,
  `ec${'ff'.repeat(30)}7f`,
  '00'.repeat(32),
  'c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a',
] as PeerKey[]
/** The order of the ed25519 group. S plus this number is another encoding of the same scalar. */
const GROUP_ORDER = 2n ** 252n + 27742317777372353535851937790883648493n

const key = (text: string) => authText((wire) => wire.replace(/("peerKey":)"[^"]*"/, `$1${text}`))
const mesh = (text: string) => authText((wire) => wire.replace(/("meshId":)"[^"]*"/, `$1${text}`))
const signature = (change: (text: string) => string) =>
  authText((wire) => wire.replace(/("signature":)"([^"]*)"/, (_, name, text) => `${name}"${change(text)}"`))
const signed = (changed: NonNullable<Parameters<typeof authFrame>[2]>['signed']) => auth(() => ({ signed: changed! }))

const FAILED = '4401 auth_failed'
const MALFORMED = '4400 frame_malformed'

export const identityRows = hostileRows([
  ...SMALL_ORDER.map((peerKey) => ['H34', `the key ${peerKey.slice(0, 8)}, of small order`, smallOrder(peerKey), FAILED] as const),
  ['H35', 'a signature whose S is not reduced', notReduced, FAILED],
  ['H36', 'a key of 31 bytes', key(`"${'ab'.repeat(31)}"`), MALFORMED],
  ['H36', 'a key of 33 bytes', key(`"${'ab'.repeat(33)}"`), MALFORMED],
  ['H36', 'a key of no bytes', key('""'), MALFORMED],
  ['H36', 'a key in capitals', key(`"${'AB'.repeat(32)}"`), MALFORMED],
  ['H36', 'a key with letters that are not hex digits', key(`"abz1${'ab'.repeat(30)}"`), MALFORMED],
  ['H36', 'base64url with a space', signature((text) => `${text.slice(0, 10)} ${text.slice(10)}`), MALFORMED],
  ['H36', 'base64url with padding', signature((text) => `${text}==`), MALFORMED],
  ['H36', 'base64url with slack bits', signature((text) => `${text.slice(0, -1)}B`), MALFORMED],
  ['H36', 'base64 of the other alphabet', signature((text) => `+/${text.slice(2)}`), MALFORMED],
  ['H37', 'an `auth` that was valid on another connection', replayed, FAILED],
  ['H37', 'a signature over an earlier nonce', signed({ serverNonce: new Uint8Array(32) }), FAILED],
  ['H38', 'a signature made for another authority', signed({ authority: 'broker.example:443' }), FAILED],
  ['H38', 'a signature made for another broker', signed({ brokerKey: 'ab'.repeat(32) as PeerKey }), FAILED],
  ['H39', 'a signature made for another mesh', signed({ meshId: 'cd'.repeat(16) as MeshId }), FAILED],
  ['H39', 'a signature over other offered versions', signed({ versionsOffered: [1, 2] }), FAILED],
  ['H39', 'a signature over other capabilities', signed({ capabilities: ['admin'] }), FAILED],
  ['H39', 'a signature over another time', signed({ issuedAtMs: 1 }), FAILED],
  ['H39', 'a version that was not offered', signed({ version: 7 }), '4406 version_unsupported'],
  ['H40', 'unknown mesh, other mesh, unknown key, bad signature: the same reply', indistinguishable, FAILED],
  ['H42', 'a revoked key with a valid signature', revoked, '4403 revoked'],
  ['H42', 'a revoked key with an invalid signature', revokedUnsigned, FAILED],
  ['H43', 'a second session of a key ends the first', superseded, '4409 superseded'],
  ['H66', 'a mesh id in capitals', mesh(`"${'AB'.repeat(16)}"`), MALFORMED],
  ['H66', 'a mesh id with hyphens', mesh('"abababab-abab-abab-abab-abababababab"'), MALFORMED],
  ['H66', 'a mesh id in braces', mesh(`"{${'ab'.repeat(16)}}"`), MALFORMED],
  ['H66', 'a list in place of a mesh id', mesh(`["${'ab'.repeat(16)}"]`), MALFORMED],
  ['H66', 'null in place of a mesh id', mesh('null'), MALFORMED],
]) // biome-ignore format: a table

function smallOrder(peerKey: PeerKey) {
  return async ({ world }: Arena): Promise<string> => {
    const identity = generateIdentity()
    const meshId = await world.mesh()
    const forged: Identity = { ...identity, signing: { ...identity.signing, publicKey: peerKey } }
    await addMembers(world.db, meshId, [{ ...bindBoxKey(identity, meshId, 4e12), peerKey }])
    const signature = new Uint8Array(64)
    signature[0] = 1 // R is the identity, and S is 0
    return authAnswer(world.place(forged, meshId), { signature })
  }
}

async function notReduced({ world }: Arena): Promise<string> {
  const place = await world.enrol()
  const client = await WireClient.open(place.url)
  const frame = authFrame(place, await client.next('hello'))
  const halves = [frame.signature.slice(0, 32), plusGroupOrder(frame.signature.slice(32))]
  client.send({ ...frame, signature: new Uint8Array(Buffer.concat(halves)) })
  return closing(client)
}

function plusGroupOrder(scalar: Uint8Array): Uint8Array {
  const value = BigInt(`0x${Buffer.from(scalar).reverse().toString('hex')}`) + GROUP_ORDER
  return new Uint8Array(Buffer.from(value.toString(16).padStart(64, '0'), 'hex').reverse())
}

async function replayed({ world }: Arena): Promise<string> {
  const place = await world.enrol()
  const [first, second] = [await WireClient.open(place.url), await WireClient.open(place.url)]
  const captured = authFrame(place, await first.next('hello'))
  first.send(captured)
  await first.next('welcome')
  second.send(captured)
  const answer = await closing(second)
  await first.echo()
  first.destroy()
  return answer
}

async function indistinguishable({ world }: Arena): Promise<string> {
  const member = await world.enrol()
  const answers = await Promise.all([
    whole({ ...member, meshId: randomMesh() }),
    whole({ ...member, meshId: await world.mesh() }),
    whole(world.place(generateIdentity())),
    whole(member, { signature: crypto.getRandomValues(new Uint8Array(64)) }),
  ])
  const [first, ...others] = new Set(answers)
  return others.length === 0 ? first! : answers.join(', ')
}

/** Returns the reply and the close code as one string. */
async function whole(...[place, changed]: Parameters<typeof authAnswer>): Promise<string> {
  const client = await WireClient.open(place.url)
  client.send(authFrame(place, await client.next('hello'), changed))
  const { code, retryAfterMs, reason } = await client.next('refused')
  const ending = await closing(client)
  return `${code} ${retryAfterMs} ${reason}` === 'auth_failed 2000 '
    ? ending
    : `${ending}, ${code} ${retryAfterMs} ${reason}`
}

async function revoked({ world }: Arena): Promise<string> {
  const place = await world.enrol()
  await revokeMember(world.db, world.meshId, place.identity.signing.publicKey)
  return authAnswer(place)
}

async function revokedUnsigned({ world }: Arena): Promise<string> {
  const place = await world.enrol()
  await revokeMember(world.db, world.meshId, place.identity.signing.publicKey)
  return authAnswer(place, { signature: new Uint8Array(64) })
}

async function superseded({ world }: Arena): Promise<string> {
  const place = await world.enrol()
  const first = await WireClient.enter(place)
  const second = await WireClient.enter(place)
  const answer = await closing(first)
  await second.echo()
  second.destroy()
  return answer
}
