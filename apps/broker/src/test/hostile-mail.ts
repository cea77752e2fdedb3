/** H41 and H46 to H64: messages under foreign names, resends, and messages of other peers and meshes. */
import { createGroup } from '@sealpost/identity'
import { encode, FANOUT_MAX } from '@sealpost/protocol'
import type { DeliveryId, GroupId, PeerKey } from '@sealpost/std'
import { type Act, type Arena, answersTo, hostileRows, inBinary, inJson, MARK, sending } from './hostile.ts'
import { keyOf } from './member.ts'
import { envelopeTo, randomHex, sendFrame } from './wire.ts'

const MALFORMED = '4400 frame_malformed'
/** Returns a `send` in JSON with one invalid field. */
const field =
  (name: string, json: string): Act =>
  async (arena) => {
    const text = encode('json', sendFrame(envelopeTo(await arena.world.enrol()))) as string
    return inJson(text.replace(new RegExp(`("${name}":)("[^"]*"|[^,}]*)`), `$1${json}`))(arena)
  }
const settle = (ids: string) => inJson(`{"type":"settle","ids":[${ids}]}`)
const toAnotherMesh = sending(async (_, { world }) => {
  const elsewhere = await world.enrol(await world.mesh())
  return [envelopeTo(elsewhere), envelopeTo(randomHex(32) as PeerKey)]
})
/** Returns a `settle` frame with this many ids. */
const settles = (count: number): Uint8Array => {
  const bytes = new Uint8Array(3 + 8 * count)
  new DataView(bytes.buffer).setUint16(1, Math.min(count, 0xffff))
  bytes[0] = 18
  for (let i = 1; i <= count; i++) bytes[2 + 8 * i] = 1
  return bytes
}

export const mailRows = hostileRows([
  ['H41', 'an envelope that names a sender', field('envelopeId', `"${'ab'.repeat(16)}","sender":"${'cd'.repeat(32)}"`), MALFORMED],
  ['H41', 'an envelope to which the broker adds the sender', stamped, 'the sender itself', 0],
  ['H46', 'the same id with the same bytes', twice((item) => item), 'stored, duplicate', 1],
  ['H47', 'the same id with different bytes', twice((item) => ({ ...item, envelope: new Uint8Array(64) })), 'stored, id_reused', 1],
  ['H47', 'the same id with a different recipient', twice(async (item, { world }) => ({ ...item, recipient: keyOf(await world.enrol()) })), 'stored, id_reused', 1],
  ['H48', 'the same id from a different sender', fromAnother, 'stored, stored', 2],
  ['H49', 'a resend of a settled message', afterSettlement, 'stored, duplicate'],
  ['H50', 'a settle of NaN', settle('NaN'), MALFORMED],
  ['H50', 'a settle of 10^30', settle('1e30'), MALFORMED],
  ['H50', 'a settle of a delivery that was never pushed', ignored(0), 'ignored'],
  ['H50', "a settle of another session's delivery", ofAnother, 'it stays'],
  ['H51', 'a settle of 1,001 ids', inBinary(settles(1001)), MALFORMED],
  ['H51', 'a settle of 30,000 ids', inBinary(settles(30_000)), MALFORMED],
  ['H52', 'the same settle a hundred times', ignored(99), 'ignored'],
  ['H53', 'a negative time to live', field('ttlSeconds', '-1'), MALFORMED],
  ['H53', 'a time to live of 10^12 s', field('ttlSeconds', '1000000000000'), MALFORMED],
  ['H53', 'an infinite time to live', field('ttlSeconds', '1e999'), MALFORMED],
  ['H53', 'a time to live over the limit', sending((to) => [envelopeTo(to, { ttlSeconds: 31 * 86_400 })]), 'ttl_too_long'],
  ['H60', 'a broadcast to 257 recipients', broadcastTo(FANOUT_MAX + 1), MALFORMED],
  ['H61', 'a key of another mesh and an unknown key', toAnotherMesh, 'unknown_recipient, unknown_recipient'],
  ['H64', "a statement of another mesh's group", groupOfAnotherMesh, 'malformed'],
  ['H64', "a message to the members of another mesh's group", toGroupOfAnotherMesh, 'unknown_recipient'],
  ['H64', "a lookup of another mesh's key", lookupInAnotherMesh, 'unknown'],
]) // biome-ignore format: a table

async function stamped(arena: Arena): Promise<string> {
  const [from, to] = [await arena.world.enrol(), await arena.world.enrol()]
  const [sender, recipient] = [await arena.sessionOf(from), await arena.sessionOf(to)]
  sender.send(sendFrame(envelopeTo(to)))
  const [delivery] = await recipient.deliveries(1)
  recipient.send({ type: 'settle', ids: [delivery!.id] })
  await recipient.echo()
  for (const client of [sender, recipient]) client.destroy()
  return delivery!.sender === keyOf(from) ? 'the sender itself' : 'another'
}

type SendItem = ReturnType<typeof envelopeTo>

function twice(again: (item: SendItem, arena: Arena) => SendItem | Promise<SendItem>): Act {
  return async (arena) => {
    const item = envelopeTo(await arena.world.enrol())
    const client = await arena.session()
    const first = await answersTo(client, item)
    const second = await answersTo(client, await again(item, arena))
    client.destroy()
    return `${first}, ${second}`
  }
}

async function fromAnother(arena: Arena): Promise<string> {
  const item = envelopeTo(await arena.world.enrol())
  const clients = [await arena.session(), await arena.session()]
  const answers = [await answersTo(clients[0]!, item), await answersTo(clients[1]!, item)]
  for (const client of clients) client.destroy()
  return answers.join(', ')
}

async function afterSettlement(arena: Arena): Promise<string> {
  const to = await arena.world.enrol()
  const [sender, recipient] = [await arena.session(), await arena.sessionOf(to)]
  const item = envelopeTo(to)
  const first = await answersTo(sender, item)
  const [delivery] = await recipient.deliveries(1)
  recipient.send({ type: 'settle', ids: [delivery!.id] })
  await recipient.echo()
  const second = await answersTo(sender, item)
  for (const client of [sender, recipient]) client.destroy()
  return `${first}, ${second}`
}

/** Settles unknown deliveries, which has no effect. */
function ignored(again: number): Act {
  return async (arena) => {
    const client = await arena.session()
    const ids = [0, 1, Number.MAX_SAFE_INTEGER] as DeliveryId[]
    for (let i = 0; i <= again; i++) client.send({ type: 'settle', ids })
    await client.echo()
    client.destroy()
    return 'ignored'
  }
}

async function ofAnother(arena: Arena): Promise<string> {
  const to = await arena.world.enrol()
  const foreign = await arena.world.enrol(await arena.world.mesh())
  const [sender, recipient] = [await arena.session(), await arena.sessionOf(to)]
  const thieves = [await arena.session(), await arena.sessionOf(foreign), sender]
  await answersTo(sender, envelopeTo(to))
  const [delivery] = await recipient.deliveries(1)
  for (const thief of thieves) {
    thief.send({ type: 'settle', ids: [delivery!.id] })
    thief.send({ type: 'retry', items: [{ id: delivery!.id, afterMs: 0 }] })
    thief.send({ type: 'reject', items: [{ id: delivery!.id, reason: MARK }] })
    thief.send({ type: 'extend', ids: [delivery!.id], forMs: 1 })
    await thief.echo()
  }
  const [row] = await arena.world.db.run(
    (sql) => sql<{ n: number }[]>`select count(*)::int as n from message_queue where id = ${delivery!.id}`,
  )
  recipient.send({ type: 'settle', ids: [delivery!.id] })
  await recipient.echo()
  for (const client of [recipient, ...thieves]) client.destroy()
  return row!.n === 1 ? 'it stays' : 'it is gone'
}

/** Broadcasts in JSON, because the binary encoder refuses this number. */
function broadcastTo(count: number): Act {
  return async (arena) => {
    const to = await arena.world.enrol()
    const { envelopeId, recipient, ...rest } = envelopeTo(to)
    const frame = encode('json', {
      ...broadcast('0'.repeat(32) as GroupId),
      envelopes: [{ envelopeId, recipient, ...rest }],
    })
    const [head, one] = /^(.*"envelopes":\[)(.*)\]\}$/.exec(frame as string)!.slice(1)
    const all = Array.from({ length: count }, () => one!.replace(envelopeId, randomHex(16)))
    return inJson(`${head}${all.join(',')}]}`)(arena)
  }
}

const broadcast = (group: GroupId) =>
  ({
    type: 'broadcast',
    group,
    rosterEpoch: 1,
    bodyId: randomHex(32),
    body: new Uint8Array(64),
    terms: { receipts: 'none', thread: '0'.repeat(32), hops: 0, noAutoReply: false },
  }) as const

async function groupElsewhere({ world }: Arena) {
  const meshId = await world.mesh()
  const owner = await world.enrol(meshId)
  return { owner, statement: createGroup(owner.identity.signing, { meshId, name: 'crew', members: [keyOf(owner)] }) }
}

async function groupOfAnotherMesh(arena: Arena): Promise<string> {
  const { statement } = await groupElsewhere(arena)
  const client = await arena.session()
  client.send({ type: 'setGroup', ref: 1, statement: statement.bytes })
  const { outcome } = await client.next('groupSet')
  client.destroy()
  return outcome
}

async function toGroupOfAnotherMesh(arena: Arena): Promise<string> {
  const { owner, statement } = await groupElsewhere(arena)
  const founder = await arena.sessionOf(owner)
  founder.send({ type: 'setGroup', ref: 1, statement: statement.bytes })
  await founder.next('groupSet')
  const client = await arena.session()
  client.send({ ...broadcast(statement.groupId), envelopes: [envelopeTo(owner)] })
  const { items } = await client.next('nack', 'ack')
  for (const each of [founder, client]) each.destroy()
  return items.map((item) => ('code' in item ? item.code : 'stored')).join(', ')
}

async function lookupInAnotherMesh(arena: Arena): Promise<string> {
  const elsewhere = await arena.world.enrol(await arena.world.mesh())
  const client = await arena.session()
  client.send({ type: 'lookup', ref: 1, peers: [keyOf(elsewhere)] })
  const { bindings, unknown } = await client.next('directory')
  client.destroy()
  return bindings.length === 0 && unknown[0] === keyOf(elsewhere) ? 'unknown' : 'known'
}
