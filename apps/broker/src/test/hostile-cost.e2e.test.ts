/**
 * Tests that the cost of a hostile input grows linearly. Four times the size may take eight times as much CPU time of
 * the broker's main thread; quadratic processing would take sixteen times.
 */
import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Arena } from './hostile.ts'
import { maskedFrame, rawHttp, type WireClient } from './wire.ts'

const RATIO_MAX = 8
const TIMES = 4
const CLIENTS = 6
const TRIALS_MAX = 12

let arena: Arena
beforeAll(async () => {
  arena = await Arena.open()
})
afterAll(() => arena[Symbol.asyncDispose]())

/** Sends an input of this size, and waits for the reply. */
type Say = (client: WireClient, size: number) => Promise<unknown>

const ended =
  (wire: (size: number) => string): Say =>
  (client, size) => {
    client.sendWire(wire(size))
    return client.closed
  }

const fragments: Say = (client, size) => {
  const [first, next, last] = [
    maskedFrame(1, new Uint8Array()),
    maskedFrame(0, new Uint8Array()),
    maskedFrame(0, new Uint8Array()),
  ]
  first[0] = 0x01
  next[0] = 0x00
  client.sendBytes(Buffer.concat([first, ...Array<Buffer>(size).fill(next), last]))
  return client.closed
}

const settles: Say = async (client, size) => {
  const wire = JSON.stringify({ type: 'settle', ids: Array.from({ length: size }, (_, i) => i) })
  for (let i = 0; i < 20; i++) client.sendWire(wire)
  await client.echo()
}

const almost = (size: number) => `${'a'.repeat(size)}!`

test.skipIf(process.platform !== 'linux').each<[string, Say, number]>([
  ['H24: empty fragments', fragments, 10_000],
  ['H28: opening brackets', ended((size) => '['.repeat(size)), 60_000],
  ['H29: small objects', ended((size) => `[${'{},'.repeat(size / 3)}{}]`), 60_000],
  ['H30: a key repeated many times', ended((size) => `{"type":"ping"${',"ref":1'.repeat(size / 8)},"x":1}`), 60_000],
  ['H32: unknown keys', ended((size) => `{"type":"ping"${Array.from({ length: size / 10 }, (_, i) => `,"k${i}":1`).join('')}}`), 60_000],
  ['H52: settles of unknown deliveries', settles, 250],
  ['H78: quotes', ended((size) => JSON.stringify({ type: 'lookup', ref: 1, peers: ["'".repeat(size)] })), 60_000],
  ['H89: a text that almost matches', ended((size) => JSON.stringify({ type: 'status', availability: 'idle', summary: almost(size), declinesReceipts: false })), 60_000],
  ['H89: a key that almost matches', ended((size) => JSON.stringify({ type: 'lookup', ref: 1, peers: [almost(size)] })), 60_000],
  ['H89: bytes that almost match', ended((size) => JSON.stringify({ type: 'setGroup', ref: 1, statement: almost(size) })), 60_000],
])('%s', async (_, say, size) => {
  await expectFair((ofSize) => said(say, ofSize), size)
}) // biome-ignore format: a table

test.skipIf(process.platform !== 'linux').each<[string, (size: number) => string]>([
  ['H89: a token that almost matches', (size) => `Authorization: Bearer spt_${almost(size)}`],
  ['H89: subprotocols that almost match', (size) => `Sec-WebSocket-Protocol: ${'a ,'.repeat(size / 3)}!`],
])('%s', async (_, header) => {
  const { authority, port } = arena.world.broker
  const request = (size: number) => `GET /v1/inbox HTTP/1.1\r\nHost: ${authority}\r\n${header(size)}\r\n\r\n`
  const ask = async (size: number) => {
    for (let i = 0; i < 20; i++) await rawHttp(port, request(size))
  }
  await expectFair((size) => cost(() => ask(size)), 2500)
})

/** Runs trials until one pair passes. Disturbances only add time, and no quadratic pair passes. */
async function expectFair(costOf: (size: number) => Promise<number>, size: number): Promise<void> {
  await costOf(size * TIMES)
  const ratios: number[] = []
  while (ratios.length < TRIALS_MAX && !ratios.some((ratio) => ratio < RATIO_MAX)) {
    const small = await costOf(size)
    ratios.push((await costOf(size * TIMES)) / small)
  }
  expect(Math.min(...ratios), `of ${ratios.length} pairs`).toBeLessThan(RATIO_MAX)
  await arena.checkUnharmed()
}

async function said(say: Say, size: number): Promise<number> {
  const clients = await Promise.all(Array.from({ length: CLIENTS }, () => arena.session('json')))
  const spent = await cost(() => Promise.all(clients.map((client) => say(client, size))))
  for (const client of clients) client.destroy()
  return spent
}

async function cost(act: () => Promise<unknown>): Promise<number> {
  const spent = () => Number(readFileSync(`/proc/${arena.world.broker.pid}/schedstat`, 'utf8').split(' ')[0])
  const before = spent()
  await act()
  return spent() - before
}
