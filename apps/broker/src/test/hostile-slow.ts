/** H14 to H16, H26, H27, H71, H90, H91: slow clients, concurrently. */
import { connect } from 'node:net'
import type { Millis } from '@sealpost/std'
import { type Act, type Arena, closing, hostileRows, MARK } from './hostile.ts'
import { HttpPeer } from './http.ts'
import { envelopeTo, maskedFrame, sendFrame, WireClient } from './wire.ts'

/** Timeouts short enough for a test and long enough for a slow machine. */
export const HASTY = { AUTH_WITHIN_MS: '10000', HEARTBEAT_MS: '5000' }
/** How long to wait for the broker to close a silent request, after 30 s. */
const HTTP_PATIENCE_MS: Millis = 150_000
const DRIP_EVERY_MS: Millis = 500

export const slowRows = hostileRows([
  ['H14', 'headers sent byte by byte', dripped(() => `GET /v1/ws HTTP/1.1\r\nX-${MARK}: `), 'closed'],
  ['H15', 'a silent connection', dripped(() => '', 0), 'closed'],
  ['H16', 'an upgrade, then silence', async (arena) => closing(await arena.stranger()), '4408 auth_timeout'],
  ['H26', 'pongs instead of an `auth`', pongs, '4408 auth_timeout'],
  ['H27', 'a message that never ends, byte by byte', endless, '4440 heartbeat_missed'],
  ['H71', 'a body sent byte by byte', drippedBody, 'closed'],
  ['H90', 'a member that vanished', vanished, '4440 heartbeat_missed'],
  ['H91', 'a member that vanished while messages arrive for it', vanishedUnderMail, '4440 heartbeat_missed, its mail in the next session'],
]) // biome-ignore format: a table

/** Sends the beginning, then a single letter at intervals, until the broker disconnects. */
function dripped(beginning: (arena: Arena) => string, everyMs: Millis = DRIP_EVERY_MS): Act {
  return (arena) => cutOff(arena.port, beginning(arena), everyMs)
}

async function drippedBody(arena: Arena): Promise<string> {
  const { token } = await HttpPeer.enter(await arena.world.enrol())
  const head = [`POST /v1/send HTTP/1.1`, `Host: ${arena.world.broker.authority}`, `Authorization: Bearer ${token}`]
  return cutOff(
    arena.port,
    [...head, 'Content-Type: application/json', 'Content-Length: 1000', '', '{'].join('\r\n'),
    DRIP_EVERY_MS,
  )
}

function cutOff(port: number, beginning: string, everyMs: Millis): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>()
  const socket = connect(port, '127.0.0.1', () => socket.write(beginning))
  const drip = everyMs > 0 ? setInterval(() => socket.write('x'), everyMs) : undefined
  const tooLong = setTimeout(() => reject(new Error('it was never cut off')), HTTP_PATIENCE_MS)
  socket.on('error', () => undefined) // the close event follows
  socket.on('data', () => undefined)
  socket.on('close', () => resolve('closed'))
  return promise.finally(() => {
    clearInterval(drip)
    clearTimeout(tooLong)
    socket.destroy()
  })
}

async function pongs(arena: Arena): Promise<string> {
  const client = await arena.stranger()
  const timer = setInterval(() => client.sendMessage(10, new Uint8Array()), DRIP_EVERY_MS)
  return closing(client).finally(() => clearInterval(timer))
}

async function endless(arena: Arena): Promise<string> {
  const client = await arena.session()
  client.answersPings = false // a pong can't be sent within a frame
  const frame = maskedFrame(2, new Uint8Array(1000))
  let sent = 10
  client.sendBytes(frame.subarray(0, sent))
  const timer = setInterval(() => client.sendBytes(frame.subarray(sent, ++sent)), DRIP_EVERY_MS)
  return closing(client).finally(() => clearInterval(timer))
}

async function vanished(arena: Arena): Promise<string> {
  const client = await arena.session()
  client.answersPings = false
  return closing(client)
}

/** Returns the end of a vanished client, to which pushes must not count as a sign of life. */
async function vanishedUnderMail(arena: Arena): Promise<string> {
  const place = await arena.world.enrol()
  const [gone, sender] = [await WireClient.enter(place), await arena.session()]
  gone.answersPings = false
  const sent: string[] = []
  const timer = setInterval(() => {
    const item = envelopeTo(place)
    sent.push(item.envelopeId)
    sender.send(sendFrame(item))
  }, DRIP_EVERY_MS)
  const ending = await closing(gone).finally(() => clearInterval(timer))
  const back = await WireClient.enter(place)
  const deliveries = await back.deliveries(sent.length)
  back.send({ type: 'settle', ids: deliveries.map(({ id }) => id) })
  await back.echo()
  for (const client of [sender, back]) client.destroy()
  const isWhole = deliveries.every(({ envelopeId }, i) => envelopeId === sent[i])
  return isWhole ? `${ending}, its mail in the next session` : 'not all of its mail, or in another order'
}
