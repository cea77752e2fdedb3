/** Tests which clients may open a session, and that others learn as little as possible. */
import { generateIdentity } from '@sealpost/identity'
import { clientForms, type Form } from '@sealpost/protocol'
import { connect } from '@sealpost/sdk'
import type { PeerKey } from '@sealpost/std'
import { revokeMember } from '@sealpost/store/testing'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { authFrame, WireClient } from './wire.ts'
import { type Place, World } from './world.ts'

let world: World
beforeAll(async () => {
  world = await World.open()
})
afterAll(() => world[Symbol.asyncDispose]())

/** Returns the codes of the last frame and of the close frame. */
async function endOf(client: WireClient) {
  const { code, retryAfterMs, reason } = await client.next('refused')
  return { refused: { code, retryAfterMs, reason }, closing: await client.closed }
}

async function answerTo(place: Place, changed: Parameters<typeof authFrame>[2] = {}, form: Form = 'binary') {
  const client = await WireClient.open(place.url, form)
  client.send(authFrame(place, await client.next('hello'), changed))
  return endOf(client)
}

const AUTH_FAILED = {
  refused: { code: 'auth_failed', retryAfterMs: 2000, reason: '' },
  closing: { code: 4401, reason: 'auth_failed' },
}

describe.each(['binary', 'json'] as const)('in the %s form', (form) => {
  test('two SDK peers exchange messages', async () => {
    const [alice, bob] = await Promise.all([
      connect({ ...(await world.enrol()), form: clientForms[form] }),
      connect({ ...(await world.enrol()), form: clientForms[form] }),
    ])
    const arrived = Promise.withResolvers<string>()
    bob.onMessage((message) => arrived.resolve(`${message.sender} ${message.text()}`))
    const receipt = await alice.send(bob.key, 'hello')
    expect(receipt.isDuplicate).toBe(false)
    expect(await arrived.promise).toBe(`${alice.key} hello`)
    await Promise.all([alice.close(), bob.close()])
  })

  test('a wrong signature is refused', async () => {
    const place = await world.enrol()
    expect(await answerTo(place, { signature: new Uint8Array(64) }, form)).toEqual(AUTH_FAILED)
  })
})

test('the SDK ends permanently if its key was revoked or is unknown', async () => {
  const place = await world.enrol()
  await revokeMember(world.db, world.meshId, place.identity.signing.publicKey)
  await expect(connect(place)).rejects.toMatchObject({ code: 'revoked' })
  await expect(connect(world.place(generateIdentity()))).rejects.toMatchObject({ code: 'auth_failed' })
})

test('the SDK refuses a broker that cannot prove the pinned key', async () => {
  const place = await world.enrol()
  await expect(connect({ ...place, brokerKey: 'ef'.repeat(32) as PeerKey })).rejects.toMatchObject({
    code: 'wrong_broker',
  })
})

test('a key enrolled in two meshes has a session in each', async () => {
  const here = await world.enrol()
  const there = await world.enrol(await world.mesh(), here.identity)
  const [first, second] = [await WireClient.enter(here), await WireClient.enter(there)]
  await Promise.all([first.echo(), second.echo()])
  first.destroy()
  second.destroy()
})
