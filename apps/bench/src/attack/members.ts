/** Attacks by members of the mesh: what they make the broker parse, and what they hold that others wait for. */
import { WireClient } from '@sealpost/broker/testing-wire'
import type { Attack, AttackContext } from './attack.ts'
import { HttpMember } from './http-member.ts'
import { atPace, dial, inLoops, portOf, statusIn, statusOf } from './sources.ts'

const JUNK_BYTES = 250_000
const WIDE = `{"type":"send","envelopes":[${'{},'.repeat(JUNK_BYTES / 3)}{}]}`
const CHUNK_BYTES = 256 * 1024
const SLOTS = 4
/** Of the members, those that have an attachment. */
const HOLDERS = 4
const REPLAYS = 32
/** Ten times a second, where a reader that takes less than 16 kB in one is cut off. */
const SIP_BYTES = 2_000
const MADE_UP = '00'.repeat(16)

/** Sends junk, is cut off, comes back from another address, and so on. */
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

/** Each member begins four chunks at a time and sends nothing of them: a few of their own attachments, the others of none. */
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

/** Asks for all of the history again and again, and takes a little more of it than the least a reader must. */
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

export const memberAttacks: readonly Attack[] = [
  {
    name: 'member-junk',
    does: 'Five members log in 20 times a second from 200 addresses and send 250 kB of small objects each time.',
    members: 5,
    run: junk,
  },
  {
    name: 'chunk-rooms',
    does: '20 members begin four chunks each and send nothing, 4 of them of attachments that exist; an honest peer uploads a chunk a second.',
    members: 20,
    probe: 'file',
    run: rooms,
  },
  {
    name: 'replay',
    does: `A member asks for ${REPLAYS} replays of 20 MB at a time, and reads 20 kB a second of each; an honest peer replays once a second.`,
    members: 1,
    probe: 'replay',
    hasHistory: true,
    run: replays,
  },
]
