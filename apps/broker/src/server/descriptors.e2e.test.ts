/** Tests a broker whose limit of descriptors is exceeded by silent connections. */
import { readdirSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { expect, test } from 'vitest'
import { until } from '../test/process.ts'
import { envelopeTo, sendFrame, WireClient } from '../test/wire.ts'
import { World } from '../test/world.ts'

const PRLIMIT = Bun.which('prlimit')
/** The number of connections that the limit allows beyond the present ones. */
const ROOM = 200
const ATTACKERS = 600
/** Below `DESCRIPTORS_FREE_MIN`. */
const FEW = 16

test.skipIf(!PRLIMIT)(
  'the broker and its sessions survive silent connections beyond the descriptor limit, and new peers connect afterwards',
  { timeout: 120_000 },
  async () => {
    await using world = await World.open({ LIMITS: 'on' })
    const [from, to] = await world.enrolMany(2)
    const [sender, recipient] = [await WireClient.enter(from), await WireClient.enter(to)]
    const { pid, port } = world.broker
    const open = () => readdirSync(`/proc/${pid}/fd`).length
    const descriptors = open() + ROOM
    Bun.spawnSync([PRLIMIT!, '--pid', String(pid), `--nofile=${descriptors}:${descriptors}`])

    const attackers = Array.from({ length: ROOM - FEW }, () => silent(port))
    await logged(world, 'descriptors.few')
    await expect(WireClient.enter(from)).rejects.toThrow('upgrade: 503')
    await exchange()

    attackers.push(...Array.from({ length: ATTACKERS }, () => silent(port)))
    await logged(world, 'descriptors.none')
    await exchange()

    // Even then, the broker can replace its own connections.
    await world.db.run(
      (sql) => sql`
      select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and pid <> pg_backend_pid() and application_name <> 'test'`,
    )
    await exchange()

    for (const attacker of attackers) attacker.destroy()
    await logged(world, 'descriptors.free')
    const later = await WireClient.enter(await world.enrol())
    later.destroy()
    await exchange()
    expect(world.broker.isAlive).toBe(true)
    expect(await world.broker.metric('sealpost_port_closed')).toBe(0)
    expect(world.broker.log.map(({ event }) => event)).not.toContain('broker.fault')

    async function exchange() {
      // A terminated commit refuses the envelope as `unavailable`, so resend it as the head of its lane.
      const item = envelopeTo(to, { isHead: true })
      for (;;) {
        sender.send(sendFrame(item))
        const { type, items } = await sender.next('ack', 'nack')
        expect(items).toMatchObject([{ envelopeId: item.envelopeId, ...(type === 'nack' && { code: 'unavailable' }) }])
        if (type === 'ack') break
      }
      expect(await recipient.deliveries(1)).toHaveLength(1)
    }
  },
)

const logged = (world: World, event: string) =>
  until(`it logs ${event}`, () => {
    if (!world.broker.isAlive) throw new Error(`the broker ended: ${world.broker.output}`)
    return world.broker.log.some((line) => line.event === event)
  })

function silent(port: number): Socket {
  const socket = connect({ port, host: '127.0.0.1', localAddress: '127.66.6.6' })
  socket.on('error', () => undefined)
  return socket
}
