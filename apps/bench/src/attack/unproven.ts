/** Defines attacks by clients without a key. */
import type { Socket } from 'node:net'
import { WireClient } from '@sealpost/broker/testing-wire'
import { type Attack, type AttackContext, atPace, dial, portOf, postOf, statusOf } from './attack.ts'

const FROM = '127.66.6.6'
/** The attacker's rate, below an address's limits, so that each request is admitted. */
const REQUESTS_PER_SECOND = 40
const UPGRADES_PER_SECOND = 10
const SILENT_PER_SECOND = 400
const SILENT_MAX = 4_000
const BODY_BYTES = 250_000
const DEEP = '['.repeat(BODY_BYTES)
const WIDE = `[${'{},'.repeat(BODY_BYTES / 3)}{}]`

const post =
  (path: string, body: string) =>
  async ({ target, signal, count }: AttackContext): Promise<void> => {
    const request = postOf(target, path, body)
    await atPace(REQUESTS_PER_SECOND, signal, () => {
      void statusOf(dial(portOf(target), FROM), request, signal).then(count)
    })
  }

const firstFrame =
  (wire: string | Uint8Array) =>
  async ({ target, signal, count }: AttackContext): Promise<void> => {
    const form = typeof wire === 'string' ? 'json' : 'binary'
    await atPace(UPGRADES_PER_SECOND, signal, () => {
      void WireClient.open(target.url, form, FROM).then(async (client) => {
        client.sendWire(wire)
        count((await client.closed).code)
      }, refused(count))
    })
  }

/** Holds more silent sockets than the broker admits unauthenticated, from 200 addresses in 10 networks. */
async function crowd({ target, signal, count }: AttackContext): Promise<void> {
  const open = new Set<WireClient>()
  await atPace(300, signal, (no) => {
    const from = `127.77.${no % 10}.${1 + (Math.floor(no / 10) % 20)}`
    void WireClient.open(target.url, 'binary', from).then((client) => {
      open.add(client)
      count('open')
      void client.closed.then(({ code }) => {
        open.delete(client)
        count(code)
      })
    }, refused(count))
  })
  for (const client of open) client.destroy()
}

/** Holds silent connections, each of which the broker closes after 12 seconds. */
async function silent({ target, signal, count }: AttackContext): Promise<void> {
  const open = new Set<Socket>()
  await atPace(SILENT_PER_SECOND, signal, () => {
    if (open.size >= SILENT_MAX) return
    const socket = dial(portOf(target), FROM)
    open.add(socket)
    socket.once('connect', () => count('open'))
    socket.once('close', () => {
      open.delete(socket)
      count('closed')
    })
  })
  for (const socket of open) socket.destroy()
}

const refused = (count: AttackContext['count']) => () => count('refused')

export const unprovenAttacks: readonly Attack[] = [
  {
    name: 'http-deep',
    does: 'One address requests a token 40 times per second, each time with 250 kB of opening brackets.',
    isOneUnprovenAddress: true,
    run: post('/v1/token', DEEP),
  },
  {
    name: 'http-wide',
    does: 'The same, with 250 kB of small objects.',
    isOneUnprovenAddress: true,
    run: post('/v1/token', WIDE),
  },
  {
    name: 'socket-deep',
    does: 'One address opens 10 sockets per second and sends 250 kB of opening brackets on each before proving a key.',
    isOneUnprovenAddress: true,
    run: firstFrame(DEEP),
  },
  {
    name: 'socket-wide',
    does: 'The same, with 250 kB of small objects.',
    isOneUnprovenAddress: true,
    run: firstFrame(WIDE),
  },
  {
    name: 'crowd',
    does: '200 addresses in 10 networks open 300 sockets per second and prove no key.',
    run: crowd,
  },
  {
    name: 'silent',
    does: 'One address opens 400 connections per second, up to 4,000, and sends nothing.',
    isOneUnprovenAddress: true,
    run: silent,
  },
]
