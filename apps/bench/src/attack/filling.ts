/** Attacks by members: they fill what others need, or make the broker do work that nobody needs. */
import { envelopeTo, WireClient } from '@sealpost/broker/testing-wire'
import { createPool } from '@sealpost/identity'
import type { ServerFrame } from '@sealpost/protocol'
import type { DeliveryId } from '@sealpost/std'
import type { Attack, AttackContext } from './attack.ts'
import type { Member } from './stage.ts'

const LARGE_BYTES = 60_000
/** Envelopes in the air. */
const WINDOW = 32
const PAUSE_MS = 20

const enter = ({ target }: AttackContext, { identity }: Member) =>
  WireClient.enter({ ...target, identity }, { credit: 1024 })

/** Takes what has come, and ends the loop when the broker ended the connection. */
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

/** Sends envelopes of this size, as many at a time as are answered. */
function sending(client: WireClient, to: Member, { count }: AttackContext, bytes: number) {
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
  const [sender, absent] = context.members as [Member, Member]
  const client = await enter(context, sender)
  await each(client, context.signal, sending(client, absent, context, LARGE_BYTES))
}

async function rejectAll(context: AttackContext): Promise<void> {
  const [sender, accomplice] = context.members as [Member, Member]
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
  const [member] = context.members as [Member]
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
  const [sender, accomplice] = context.members as [Member, Member]
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

export const fillingAttacks: readonly Attack[] = [
  {
    name: 'mailbox-bytes',
    does: 'A member sends 60 kB envelopes to one recipient that is away, as fast as the broker takes them.',
    members: 2,
    run: fillMailbox,
  },
  {
    name: 'dead-letters',
    does: 'A member sends 60 kB envelopes, and its recipient rejects each.',
    members: 2,
    run: rejectAll,
  },
  { name: 'pools', does: 'A member founds 16 pools a second.', members: 1, run: foundPools },
  {
    name: 'retries',
    does: 'A member gives back each delivery at once, and settles 500 a second that it does not hold.',
    members: 2,
    run: giveBackAll,
  },
]
