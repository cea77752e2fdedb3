/** Defines attacks by members of the mesh. They use up capacity that others need. Also lists all attacks. */
import { envelopeTo, WireClient } from '@sealpost/broker/testing-wire'
import { createPool } from '@sealpost/identity'
import type { ServerFrame } from '@sealpost/protocol'
import type { DeliveryId } from '@sealpost/std'
import {
  type Attack,
  type AttackContext,
  atPace,
  dial,
  HttpMember,
  inLoops,
  portOf,
  type StageMember,
  statusIn,
  statusOf,
} from './attack.ts'
import { unprovenAttacks } from './unproven.ts'

const JUNK_BYTES = 250_000
const WIDE = `{"type":"send","envelopes":[${'{},'.repeat(JUNK_BYTES / 3)}{}]}`
const CHUNK_BYTES = 256 * 1024
const SLOTS = 4
/** The number of members with an attachment. */
const HOLDERS = 4
const REPLAYS = 32
/** Bytes per read, ten times a second: just above the 16 kB/s below which the broker disconnects a reader. */
const SIP_BYTES = 2_000
const MADE_UP = '00'.repeat(16)

/** Sends junk until the broker disconnects, then from another address. */
async function junk({ target, members, signal, count }: AttackContext): Promise<void> {
  await atPace(20, signal, (no) => {
    const place = { ...target, ...members[no % members.length]! }
    void WireClient.enter(place, { form: 'json', from: `127.78.0.${1 + (no % 200)}` }).then(
      async (client) => {
        client.sendWire(WIDE)
        const late = new Promise<string>((resolve) => signal.addEventListener('abort', () => resolve('waits')))
        count(await Promise.race([client.closed.then(({ code }) => code), late]))
        client.destroy()
      },
      () => count('refused'),
    )
  })
}

/** Starts four uploads at a time per member without content, mostly of nonexistent attachments. */
async function rooms({ target, members, signal, count }: AttackContext): Promise<void> {
  const hash = 'A'.repeat(43)
  await Promise.all(
    members.map(async (member) => {
      const peer = await HttpMember.enter({ ...target, ...member })
      const isHolder = members.indexOf(member) < HOLDERS
      const own = isHolder ? await peer.createAttachment(8 * CHUNK_BYTES, CHUNK_BYTES) : MADE_UP
      const begin = async (slot: number) => {
        const head = peer.head('PUT', `/v1/meshes/${target.meshId}/attachments/${own}/chunks/${slot}?hash=${hash}`)
        count(
          await statusOf(dial(portOf(target), '127.79.0.1'), `${head}Content-Length: ${CHUNK_BYTES}\r\n\r\n`, signal),
        )
        await Bun.sleep(100)
      }
      const loop = async (slot: number) => {
        while (!signal.aborted) await begin(slot)
      }
      await Promise.all(Array.from({ length: SLOTS }, (_, slot) => loop(slot)))
    }),
  )
}

/** Requests the whole history repeatedly, and reads just above the required minimum. */
async function replays({ target, members, signal, count }: AttackContext): Promise<void> {
  const peer = await HttpMember.enter({ ...target, ...members[0]! })
  const head = `${peer.head('GET', peer.replayPath(0))}\r\n`
  await inLoops(REPLAYS, signal, async () => {
    const socket = dial(portOf(target), '127.80.0.1')
    socket.pause()
    const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()))
    let taken = 0
    const taking = setInterval(() => {
      const bytes: Uint8Array | null = socket.read(SIP_BYTES) ?? socket.read()
      if (bytes && taken === 0) count(statusIn(bytes))
      taken += bytes?.length ?? 0
    }, 100)
    signal.addEventListener('abort', () => socket.destroy(), { once: true })
    socket.write(head)
    await closed
    clearInterval(taking)
    await Bun.sleep(100)
  })
}

const LARGE_BYTES = 60_000
/** The maximum number of unanswered envelopes. */
const WINDOW = 32
const PAUSE_MS = 20

const enter = ({ target }: AttackContext, { identity }: StageMember) =>
  WireClient.enter({ ...target, identity }, { credit: 1024 })

async function each(client: WireClient, signal: AbortSignal, act: (frames: ServerFrame[]) => void): Promise<void> {
  const closed = client.closed.then(({ code }) => code)
  let end: number | null = null
  void closed.then((code) => (end = code))
  while (!signal.aborted && end === null) {
    act(client.frames.splice(0))
    await Bun.sleep(PAUSE_MS)
  }
  client.destroy()
}

/** Keeps sending envelopes of this size, within the window. */
function sending(client: WireClient, to: StageMember, { count }: AttackContext, bytes: number) {
  let inFlight = 0
  return (frames: readonly ServerFrame[]) => {
    for (const frame of frames) {
      if (frame.type !== 'ack' && frame.type !== 'nack') continue
      inFlight -= frame.items.length
      for (const item of frame.items) count('code' in item ? item.code : 'ack')
    }
    for (; inFlight < WINDOW; inFlight++)
      client.send({ type: 'send', envelopes: [envelopeTo(to, { isHead: true, envelope: new Uint8Array(bytes) })] })
  }
}

async function fillMailbox(context: AttackContext): Promise<void> {
  const [sender, absent] = context.members as [StageMember, StageMember]
  const client = await enter(context, sender)
  await each(client, context.signal, sending(client, absent, context, LARGE_BYTES))
}

async function rejectAll(context: AttackContext): Promise<void> {
  const [sender, accomplice] = context.members as [StageMember, StageMember]
  const [from, to] = [await enter(context, sender), await enter(context, accomplice)]
  const reject = (frames: readonly ServerFrame[]) => {
    for (const { id } of frames.flatMap((frame) => (frame.type === 'push' ? frame.deliveries : [])))
      to.send({ type: 'reject', items: [{ id, reason: 'no' }] })
  }
  await Promise.all([
    each(from, context.signal, sending(from, accomplice, context, LARGE_BYTES)),
    each(to, context.signal, reject),
  ])
}

async function foundPools(context: AttackContext): Promise<void> {
  const { target, signal, count } = context
  const [member] = context.members as [StageMember]
  const client = await enter(context, member)
  const { signing } = member.identity
  let ref = 0
  await each(client, signal, (frames) => {
    for (const frame of frames) if (frame.type === 'groupSet') count(frame.outcome)
    const draft = { meshId: target.meshId, name: `flood ${ref}`, members: [signing.publicKey] }
    if (++ref % 3 === 0) client.send({ type: 'setPool', ref, statement: createPool(signing, draft).bytes })
  })
}

async function giveBackAll(context: AttackContext): Promise<void> {
  const [sender, accomplice] = context.members as [StageMember, StageMember]
  const [from, to] = [await enter(context, sender), await enter(context, accomplice)]
  const strays = Array.from({ length: 1000 }, (_, i) => (i + 1) as DeliveryId)
  const retry = (frames: readonly ServerFrame[]) => {
    const ids = frames.flatMap((frame) => (frame.type === 'push' ? frame.deliveries.map(({ id }) => id) : []))
    for (const _ of ids) context.count('pushed')
    if (ids.length > 0) to.send({ type: 'retry', items: ids.map((id) => ({ id, afterMs: 0 })) })
    to.send({ type: 'settle', ids: strays.slice(0, 10) })
  }
  void to.closed.then(({ code }) => context.count(code))
  await Promise.all([
    each(from, context.signal, sending(from, accomplice, context, 100)),
    each(to, context.signal, retry),
  ])
}

const memberAttacks: readonly Attack[] = [
  {
    name: 'member-junk',
    does: 'Five members log in 20 times per second from 200 addresses and send 250 kB of small objects each time.',
    members: 5,
    run: junk,
  },
  {
    name: 'chunk-rooms',
    does: '20 members start four chunk uploads each and send no data, 4 of them for existing attachments; an honest peer uploads a chunk per second.',
    members: 20,
    probe: 'file',
    run: rooms,
  },
  {
    name: 'replay',
    does: `A member requests ${REPLAYS} replays of 20 MB at a time and reads 20 kB/s of each; an honest peer replays once per second.`,
    members: 1,
    probe: 'replay',
    hasHistory: true,
    run: replays,
  },
  {
    name: 'mailbox-bytes',
    does: 'A member sends 60 kB envelopes to an offline recipient as fast as the broker accepts them.',
    members: 2,
    run: fillMailbox,
  },
  {
    name: 'dead-letters',
    does: 'A member sends 60 kB envelopes, and its recipient rejects each.',
    members: 2,
    run: rejectAll,
  },
  { name: 'pools', does: 'A member creates 16 pools per second.', members: 1, run: foundPools },
  {
    name: 'retries',
    does: 'A member returns each delivery immediately, and settles 500 deliveries per second that it does not hold.',
    members: 2,
    run: giveBackAll,
  },
]

export const attacks: readonly Attack[] = [...unprovenAttacks, ...memberAttacks]
