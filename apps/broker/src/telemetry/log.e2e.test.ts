/** Tests that the broker's log contains no secrets. */

import { randomUUID } from 'node:crypto'
import { clientForms } from '@sealpost/protocol'
import { connect } from '@sealpost/sdk'
import { toHex } from '@sealpost/std'
import { expect, test } from 'vitest'
import { roleWithPassword } from '../test/canary.ts'
import { until } from '../test/process.ts'
import { authFrame, envelopeTo, sendFrame, WireClient } from '../test/wire.ts'
import { World } from '../test/world.ts'

test('bodies, keys, envelopes and the database password appear in no line', async () => {
  const password = `canary${randomUUID().replaceAll('-', '')}`
  const scratch = await roleWithPassword(password)
  await using world = await World.open({ LOG_LEVEL: 'debug', INSERT_LEASE: 'off' }, scratch)
  const [alicePlace, bobPlace] = await world.enrolMany(2)
  const [alice, bob] = [await connect(alicePlace), await connect({ ...bobPlace, form: clientForms.json })]
  const body = `canary body ${randomUUID()}`
  const arrived = Promise.withResolvers<void>()
  bob.onMessage((message) => {
    if (message.attempt === 1) throw new Error(`canary ${body}`)
    arrived.resolve()
  })
  await alice.send(bob.key, body)
  await arrived.promise

  const raw = await WireClient.open(world.broker.url)
  const auth = authFrame(alicePlace, await raw.next('hello'), { signature: crypto.getRandomValues(new Uint8Array(64)) })
  raw.send(auth)
  await raw.closed
  const item = envelopeTo(bobPlace)
  const wire = await WireClient.enter(alicePlace)
  wire.send(sendFrame(item))
  await wire.next('ack')
  await terminateAll(world)
  wire.sendWire(`{"canary":"${body}"}`)
  await wire.closed
  await fetch(`${world.broker.httpUrl}/v1/ws?token=${password}`, {
    headers: { Cookie: password, Authorization: password },
  })
  await Promise.all([alice.close(), bob.close()])
  world.broker.signal('SIGTERM')
  await world.broker.exited

  const { output } = world.broker
  const texts = (bytes: Uint8Array) => {
    const buffer = Buffer.from(bytes)
    return [toHex(bytes), buffer.toString('base64url'), buffer.toString('base64')]
  }
  const secrets = [password, body, 'canary', alice.key, bob.key, item.envelopeId, world.meshId]
  for (const { identity } of [alicePlace, bobPlace])
    secrets.push(
      ...texts(identity.signing.secretKey),
      ...texts(identity.box.secretKey),
      ...texts(identity.box.publicKey),
    )
  secrets.push(...texts(auth.signature), ...texts(auth.clientNonce), ...texts(item.envelope))
  for (const secret of secrets) expect(output.includes(secret), secret).toBe(false)
  expect(world.broker.log.map((line) => line.event)).toContain('session.closed')
  expect(world.broker.log.filter((line) => line.level === 'error')).toEqual([])
})

async function terminateAll(world: World): Promise<void> {
  const rows = await world.db.run(
    (sql) => sql`select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and application_name like 'sealpost %'`,
  )
  expect(rows.length).toBeGreaterThan(0)
  await until('it came back', async () => (await fetch(`${world.broker.httpUrl}/readyz`)).ok)
}

test("the broker keeps running after its log's reader ends", async () => {
  await using world = await World.open({ LOG_LEVEL: 'debug' })
  await world.broker.closeOutput()
  const [sender, recipient] = [await connect(await world.enrol()), await connect(await world.enrol())]
  for (let i = 0; i < 5; i++) (await WireClient.open(world.broker.url)).sendWire('text')
  const arrived = Promise.withResolvers<void>()
  recipient.onMessage(() => arrived.resolve())
  await sender.send(recipient.key, 'still here')
  await arrived.promise
  expect(world.broker.isAlive).toBe(true)
  await Promise.all([sender.close(), recipient.close()])
})
