/** H97 to H99: attachments over HTTP with invalid reservations, wrong chunks, and files of other peers. */
import { hash256 } from '@sealpost/identity'
import { type Act, type Arena, hostileRows, MARK } from './hostile.ts'
import { type Answer, ask, HttpPeer } from './http.ts'
import { randomHex } from './wire.ts'
import type { Place } from './world.ts'

const BYTES = 5000
const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url')
const told = ({ status, body }: Answer): string => (body?.code ? `${status} ${body.code}` : String(status))

interface Scene {
  readonly place: Place
  readonly peer: HttpPeer
  readonly arena: Arena
  readonly url: string
  readonly id: string
}

/** Runs `act` with a peer that has a private attachment of two chunks. */
const withRoom = (act: (scene: Scene) => Promise<Answer>): Act => async (arena) => {
  const place = await arena.world.enrol()
  const peer = await HttpPeer.enter(place)
  const url = `${arena.world.broker.httpUrl}/v1/meshes/${place.meshId}/attachments`
  const scene = { place, peer, arena, url, id: randomHex(16) }
  await create(scene, {})
  return told(await act(scene))
} // biome-ignore format: as its fellows

const create = ({ peer, place, id }: Scene, changed: Record<string, unknown>): Promise<Answer> => {
  const room = { id, bytes: BYTES, chunkBytes: 4096, recipients: [place.identity.signing.publicKey] }
  return peer.post(`/v1/meshes/${place.meshId}/attachments`, { ...room, ...changed })
}

const room = (changed: Record<string, unknown>): Act =>
  withRoom((scene) => create({ ...scene, id: randomHex(16) }, changed))

function put({ peer, url, id }: Scene, chunk: string, bytes: Uint8Array, hash = hash256(bytes)): Promise<Answer> {
  return ask(`${url}/${id}/chunks/${chunk}?hash=${text(hash)}`, { method: 'PUT', headers: peer.headers, body: bytes as Uint8Array<ArrayBuffer> }) // biome-ignore format: one thing
}

const given = (chunk: string, length: number): Act =>
  withRoom((scene) => put(scene, chunk, new Uint8Array(length).fill(65)))
const request = (method: string, rest: (scene: Scene) => string): Act =>
  withRoom((scene) => ask(scene.url + rest(scene), { method, headers: scene.peer.headers }))

/** Sends the same request as another member of the mesh. */
const asStranger = (act: (scene: Scene) => Promise<Answer>): Act =>
  withRoom(async (scene) => act({ ...scene, peer: await HttpPeer.enter(await scene.arena.world.enrol()) }))

const complete = ({ peer, place, id }: Scene, hash: Uint8Array): Promise<Answer> =>
  peer.post(`/v1/meshes/${place.meshId}/attachments/${id}/complete`, { hash: text(hash) })

const MALFORMED = '400 body_malformed'
const UNKNOWN = '404 attachment_unknown'

export const attachmentRows = hostileRows([
  ['H97', 'a reservation of 0 bytes', room({ bytes: 0 }), MALFORMED],
  ['H97', 'a reservation above 2^53 bytes', room({ bytes: 2 ** 53 }), MALFORMED],
  ['H97', 'a reservation above the limit', room({ bytes: 2 ** 31, chunkBytes: 262_144 }), '413 attachment_too_large'],
  ['H97', 'a reservation with too many chunks', room({ bytes: 65_537 * 4096 }), MALFORMED],
  ['H97', 'a reservation with chunks of 0 bytes', room({ chunkBytes: 1 }), MALFORMED],
  ['H97', 'a reservation with chunks above the limit', room({ chunkBytes: 262_145 }), MALFORMED],
  ['H97', 'a reservation without recipients', room({ recipients: [] }), MALFORMED],
  ['H97', 'a reservation for a malformed key', room({ recipients: [MARK] }), MALFORMED],
  ['H97', 'a reservation for an unknown key', room({ recipients: [randomHex(32)] }), '404 recipient_unknown'],
  ['H97', 'a reservation for an unknown group', room({ recipients: undefined, group: randomHex(16) }), '404 recipient_unknown'],
  ['H97', 'a reservation for both peers and a group', room({ group: randomHex(16) }), MALFORMED],
  ['H97', 'a reservation with an unknown field', room({ [MARK]: 1 }), MALFORMED],
  ['H97', 'a different reservation with the same id', withRoom((scene) => create(scene, { bytes: 1 })), '409 attachment_taken'],
  ['H97', 'a reservation in another mesh', withRoom(async ({ peer, arena }) => peer.post(`/v1/meshes/${await arena.world.mesh()}/attachments`, {})), UNKNOWN],
  ['H98', 'a chunk that is too short', given('0', 4095), '400 chunk_malformed'],
  ['H98', 'a chunk that is too long', given('1', 4096), '400 chunk_malformed'],
  ['H98', 'an empty chunk', given('0', 0), '400 chunk_malformed'],
  ['H98', 'a chunk beyond the end of the file', given('2', 904), '400 chunk_malformed'],
  ['H98', 'a chunk with a wrong hash', withRoom((scene) => put(scene, '0', new Uint8Array(4096), new Uint8Array(32))), '400 chunk_malformed'],
  ['H98', 'a chunk without a hash', request('PUT', ({ id }) => `/${id}/chunks/0`), '400 query_malformed'],
  ['H98', 'a chunk with a malformed index', given('-1', 4096), '404 not_found'],
  ['H98', 'a chunk index with a leading zero', given('00', 4096), '404 not_found'],
  ['H98', 'a chunk index out of range', given('65536', 4096), '400 chunk_malformed'],
  ['H98', 'a different chunk at the same index', withRoom(async (scene) => {
    await put(scene, '0', new Uint8Array(4096))
    return put(scene, '0', new Uint8Array(4096).fill(1))
  }), '409 chunk_differs'],
  ['H98', 'an incomplete file declared complete', withRoom((scene) => complete(scene, new Uint8Array(32))), '409 chunk_missing'],
  ['H98', 'a file with a wrong hash', withRoom(async (scene) => {
    await put(scene, '0', new Uint8Array(4096))
    await put(scene, '1', new Uint8Array(BYTES - 4096))
    return complete(scene, new Uint8Array(32))
  }), '409 attachment_differs'],
  ['H99', "a chunk for another peer's file", asStranger((scene) => put(scene, '0', new Uint8Array(4096))), UNKNOWN],
  ['H99', "completing another peer's file", asStranger(({ url, id, peer }) => ask(`${url}/${id}`, { method: 'DELETE', headers: peer.headers })), UNKNOWN],
  ['H99', "reading another peer's file", asStranger(({ url, id, peer }) => ask(`${url}/${id}`, { headers: peer.headers })), UNKNOWN],
  ['H99', 'a file with a malformed id', request('GET', () => `/${MARK}`), '404 not_found'],
  ['H99', 'a nonexistent file', request('GET', () => `/${randomHex(16)}`), UNKNOWN],
  ['H99', 'a nonexistent chunk', request('GET', ({ id }) => `/${id}/chunks/1`), '409 chunk_missing'],
  ['H99', 'another method', request('PATCH', ({ id }) => `/${id}`), '405 method_not_allowed'],
]) // biome-ignore format: a table
