/** H78 to H89, H94: unusual text, numbers, sizes and clocks in otherwise valid frames. */
import { deflateRawSync } from 'node:zlib'
import { encode } from '@sealpost/protocol'
import { type EnvelopeId, fromHex } from '@sealpost/std'
import { type Act, type Arena, answersTo, below, hostileRows, inJson, inSession, MARK, sending } from './hostile.ts'
import { keyOf } from './member.ts'
import { envelopeTo, maskedFrame, rawHttp, sendFrame, upgradeRequest } from './wire.ts'
import type { Place } from './world.ts'

const MALFORMED = '4400 frame_malformed'
const status = (summary: string) =>
  inJson(`{"type":"status","availability":"idle","summary":${summary},"declinesReceipts":false}`)
const lookup = (peer: string) => inJson(JSON.stringify({ type: 'lookup', ref: 1, peers: [peer] }))
const ping = (ref: string) => inJson(`{"type":"ping","ref":${ref}}`)
const envelopeOf =
  (bytes: number): Act =>
  async (arena) => {
    const to = await arena.world.enrol()
    const text = encode('json', sendFrame(envelopeTo(to))) as string
    const envelope = Buffer.alloc(bytes).toString('base64url')
    return inJson(text.replace(/("envelope":)"[^"]*"/, `$1"${envelope}"`))(arena)
  }
const QUOTES = `'"\\;--$1%_`.repeat(10_000)
const SQL = `'; drop table member; -- ${MARK}`

export const valueRows = hostileRows([
  ['H78', 'SQL in place of a key', lookup(SQL), MALFORMED],
  ['H78', 'a placeholder in place of a key', lookup('$1'), MALFORMED],
  ['H78', '100 KB of quotes in place of a key', lookup(QUOTES), '1009'],
  ['H78', '7 KB of quotes in place of a key', lookup(QUOTES.slice(0, 7_000)), MALFORMED],
  ['H78', '100 KB of quotes in a text field', status(JSON.stringify(QUOTES)), '1009'],
  ['H78', '7 KB of quotes in a text field', status(JSON.stringify(QUOTES.slice(0, 7_000))), MALFORMED],
  ['H78', 'SQL in a text field is stored as text', saidToWatchers(SQL.replace(MARK, '')), 'said as it was'],
  ['H78', 'a key in capitals', lookup('AB'.repeat(32)), MALFORMED],
  ['H79', 'wildcards in a text field are stored as text', saidToWatchers(String.raw`%_\%' _`), 'said as it was'],
  ['H80', 'a zero character in a text', status(String.raw`"a\u0000b"`), MALFORMED],
  ['H81', 'half a surrogate pair in a text', status(String.raw`"\ud800"`), MALFORMED],
  ['H81', 'half a surrogate pair in place of an id', lookup('\ud801'.repeat(64)), MALFORMED],
  ['H82', 'composed letters', status('"\u00e9"'), MALFORMED],
  ['H82', 'letters with combining accents', status('"e\u0301"'), MALFORMED],
  ['H82', 'a text with a direction override', status('"\u202eabc"'), MALFORMED],
  ['H82', 'zero-width characters', status('"a\u200bb"'), MALFORMED],
  ['H82', 'look-alike letters', status('"\u0430dmin"'), MALFORMED],
  ['H83', 'the number 2^53', ping('9007199254740993'), MALFORMED],
  ['H83', 'minus zero', ping('-0'), MALFORMED],
  ['H83', 'infinity', ping('1e999'), MALFORMED],
  ['H83', 'a number as text', ping('"5"'), MALFORMED],
  ['H83', 'a fraction', ping('5.5'), MALFORMED],
  ['H83', 'a binary id above 2^53', inSession((client) => client.sendWire(Uint8Array.of(18, 0, 1, ...Array(8).fill(255)))), MALFORMED],
  ['H84', 'an empty envelope', envelopeOf(0), MALFORMED],
  ['H84', 'an envelope of 39 bytes', envelopeOf(39), MALFORMED],
  ['H84', 'the largest envelope', sending((to) => [envelopeTo(to, { envelope: new Uint8Array(72 * 1024) })]), 'stored', 1],
  ['H84', 'an envelope one byte above the limit', sending((to) => [envelopeTo(to, { envelope: new Uint8Array(72 * 1024 + 1) })]), 'envelope_too_large'],
  ['H85', 'random bytes', inSession((client) => client.sendWire(crypto.getRandomValues(new Uint8Array(200)).fill(250, 0, 1))), MALFORMED],
  ['H85', 'an empty message', inSession((client) => client.sendWire(new Uint8Array())), MALFORMED],
  ['H85', 'text where bytes are expected', inSession((client) => client.sendWire(`{"type":"ping","ref":1,"${MARK}":1}`)), '1003 wrong_form'],
  ['H85', 'bytes where text is expected', inJson(encode('binary', { type: 'ping', ref: 1 })), '1003 wrong_form'],
  ['H86', 'a time to live beyond the range of the database', endlessRow, 'delivered'],
  ['H87', 'an offer of compression', upgradeExtensions, '101 without extensions'],
  ['H88', 'a compressed message', compressedBomb, '1002'],
  ['H94', 'ids from a clock that is ten years off', sending((to) => [years(to, -10), years(to, 10)]), 'stored, stored', 2],
]) // biome-ignore format: a table

/** Sets a status. Returns it as a watcher receives it. */
function saidToWatchers(summary: string): Act {
  return async (arena) => {
    const place = await arena.world.enrol()
    const [speaker, watcher] = [await arena.sessionOf(place, 'json'), await arena.session()]
    watcher.send({ type: 'watch', isOn: true })
    await watcher.next('presence')
    speaker.send({ type: 'status', availability: 'working', summary, declinesReceipts: false })
    for (;;) {
      const { peers } = await watcher.next('presence')
      const said = peers.find(({ peer, availability }) => peer === keyOf(place) && availability === 'working')
      if (!said) continue
      for (const client of [speaker, watcher]) client.destroy()
      return said.summary === summary ? 'said as it was' : said.summary
    }
  }
}

async function endlessRow(arena: Arena): Promise<string> {
  const to = await arena.world.enrol()
  const sender = await arena.session()
  await answersTo(sender, envelopeTo(to))
  await arena.world.db.run(
    (sql) => sql`update message_queue set expires_at = 'infinity'
      where (mesh_id, recipient) = (select mesh_id, peer_no from member where peer_key = ${fromHex(keyOf(to))})`,
  )
  const recipient = await arena.sessionOf(to)
  const [delivery] = await recipient.deliveries(1)
  recipient.send({ type: 'settle', ids: [delivery!.id] })
  await recipient.echo()
  for (const client of [sender, recipient]) client.destroy()
  return 'delivered'
}

async function upgradeExtensions({ world }: Arena): Promise<string> {
  const request = upgradeRequest(world.broker.authority, ['Sec-WebSocket-Extensions: permessage-deflate'])
  const { status, headers } = await rawHttp(world.broker.port, request)
  return `${status} ${headers.has('sec-websocket-extensions') ? 'with' : 'without'} extensions`
}

/** A compressed message of 32 KB, which expands to 32 MiB. */
let bomb: Uint8Array | undefined
async function compressedBomb(arena: Arena): Promise<string> {
  bomb ??= maskedFrame(2, deflateRawSync(Buffer.alloc(32 * 1024 * 1024)))
  bomb[0] = 0xc2
  return below(bomb)(arena)
}

/** Returns an envelope whose UUID v7 lies this many years ahead. */
function years(to: Place, ahead: number) {
  const item = envelopeTo(to)
  const atMs = Date.now() + ahead * 365 * 86_400_000
  return { ...item, envelopeId: (atMs.toString(16).padStart(12, '0') + item.envelopeId.slice(12)) as EnvelopeId }
}
