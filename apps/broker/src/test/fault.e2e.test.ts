/** Tests that a bug in the broker is reported to the affected client and unnoticed by others. */
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { FAULT_TTL_SECONDS } from './fault.ts'
import { HttpPeer } from './http.ts'
import { until } from './process.ts'
import { envelopeTo, sendFrame, WireClient } from './wire.ts'
import { World } from './world.ts'

test('H33, H76: a broker bug ends the connection that triggers it, and no other', async () => {
  await using world = await World.open({ BUN_OPTIONS: `--preload ${join(import.meta.dirname, 'fault.ts')}` })
  const [from, to] = await world.enrolMany(2)
  const [bystander, client] = [await WireClient.enter(to), await WireClient.enter(from)]
  const item = envelopeTo(to, { ttlSeconds: FAULT_TTL_SECONDS })
  client.send(sendFrame(item))
  expect(await client.next('refused')).toMatchObject({ code: 'internal', reason: '' })
  expect(await client.closed).toEqual({ code: 1011, reason: 'internal' })

  const http = await HttpPeer.enter(from)
  expect(await http.send(item)).toMatchObject({ status: 500, body: { code: 'internal' } })
  await until('neither is held any more', async () => (await world.broker.metric('sealpost_connections')) === 1)
  expect((await http.send(envelopeTo(to))).body.results).toMatchObject([{ status: 'stored' }])
  expect(await bystander.deliveries(1)).toHaveLength(1)
  const faults = world.broker.log.filter((line) => line.level === 'error')
  expect(faults.map(({ event }) => event)).toEqual(['socket.fault', 'http.fault'])
  expect(world.broker.output).not.toContain('a bug') // an error's message may quote the input
  bystander.destroy()
})
