/** Tests which transfers receive the memory for chunks in transit, and which lose it. */
import { connect } from 'node:net'
import { hash256 } from '@sealpost/identity'
import { expect, test } from 'vitest'
import { ask, HttpPeer } from './http.ts'
import { sharedWorlds } from './shared-worlds.ts'
import { randomHex, rawHttp } from './wire.ts'
import { type Place, World } from './world.ts'

const shared = sharedWorlds()

const CHUNK_BYTES = 256 * 1024
const CHUNK = new Uint8Array(CHUNK_BYTES)
const HASH = () => Buffer.from(hash256(CHUNK)).toString('base64url')

/** Returns the head of a request that puts a chunk of this length. */
function putHead({ world, place, peer }: Uploader, id: string, chunk = 0): string {
  const path = `/v1/meshes/${place.meshId}/attachments/${id}/chunks/${chunk}?hash=${HASH()}`
  const lines = [
    `PUT ${path} HTTP/1.1`,
    `Host: ${world.broker.authority}`,
    `Authorization: ${peer.headers.Authorization}`,
  ]
  return [...lines, `Content-Length: ${CHUNK_BYTES}`, '', ''].join('\r\n')
}

interface Uploader {
  readonly world: World
  readonly place: Place
  readonly peer: HttpPeer
}

async function uploader(world: World, place: Place): Promise<Uploader> {
  return { world, place, peer: await HttpPeer.enter(place) }
}

/** Creates an attachment of four chunks for its creator only. */
async function attachment({ place, peer }: Uploader): Promise<string> {
  const id = randomHex(16)
  const room = { id, bytes: 4 * CHUNK_BYTES, chunkBytes: CHUNK_BYTES, recipients: [place.identity.signing.publicKey] }
  const { status } = await peer.post(`/v1/meshes/${place.meshId}/attachments`, room)
  expect(status).toBe(200)
  return id
}

async function put({ world, place, peer }: Uploader, id: string): Promise<string> {
  const url = `${world.broker.httpUrl}/v1/meshes/${place.meshId}/attachments/${id}/chunks/0?hash=${HASH()}`
  const { status, body } = await ask(url, { method: 'PUT', headers: peer.headers, body: CHUNK })
  return body ? `${status} ${body.code}` : String(status)
}

test('a chunk of a nonexistent attachment is refused before its body arrives', async () => {
  await using world = await shared({ ATTACHMENT_TRANSIT_BYTES: String(CHUNK_BYTES) })
  const someone = await uploader(world, await world.enrol())
  const answer = await rawHttp(world.broker.port, putHead(someone, randomHex(16)))
  expect([answer.status, JSON.parse(answer.body)]).toEqual([404, { code: 'attachment_unknown' }])
})

test('a body that stalls is abandoned, and its memory goes to another request', async () => {
  await using world = await shared({ ATTACHMENT_TRANSIT_BYTES: String(CHUNK_BYTES) })
  const [slow, other] = [await uploader(world, await world.enrol()), await uploader(world, await world.enrol())]
  const [slowId, id] = [await attachment(slow), await attachment(other)]
  const answer = await rawHttp(world.broker.port, putHead(slow, slowId))
  expect([answer.status, JSON.parse(answer.body)]).toEqual([408, { code: 'body_too_slow' }])
  expect(await put(other, id)).toBe('204')
})

test('one mesh gets at most half of the memory', async () => {
  await using world = await World.open({ LIMITS: 'on', ATTACHMENT_TRANSIT_BYTES: String(8 * CHUNK_BYTES) })
  const [holder, neighbour] = [await uploader(world, await world.enrol()), await uploader(world, await world.enrol())]
  const elsewhere = await uploader(world, await world.enrol(await world.mesh()))
  const [held, near, far] = [await attachment(holder), await attachment(neighbour), await attachment(elsewhere)]
  const sockets = [0, 1, 2, 3].map((chunk) => {
    const socket = connect(world.broker.port, '127.0.0.1')
    socket.on('error', () => undefined)
    socket.write(putHead(holder, held, chunk))
    socket.write(CHUNK.subarray(0, 200 * 1024)) // enough for 17 seconds at the minimum rate
    return socket
  })
  await expect.poll(() => world.broker.metric('sealpost_attachment_transit_bytes')).toBe(4 * CHUNK_BYTES)
  expect(await put(neighbour, near)).toBe('503 try_later')
  expect(await put(elsewhere, far)).toBe('204')
  for (const socket of sockets) socket.destroy()
  await expect.poll(() => put(neighbour, near)).toBe('204')
})
