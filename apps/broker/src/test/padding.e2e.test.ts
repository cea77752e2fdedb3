/** Tests that a broker with a low limit accepts padded messages. */
import { expect, test } from 'vitest'
import { codeOf, Member } from './member.ts'
import { World } from './world.ts'

/** Nonce, authenticator and inner header. */
const OVERHEAD_BYTES = 197
const ENVELOPE_BYTES_MAX = 2000

test('padding never makes a message too large for its broker', async () => {
  await using world = await World.open({ ENVELOPE_BYTES_MAX: String(ENVELOPE_BYTES_MAX) })
  const [ada, ben] = [await Member.enter(world, undefined, { padding: true }), await Member.enter(world)]
  const longest = ENVELOPE_BYTES_MAX - OVERHEAD_BYTES
  for (const bytes of [0, longest - 1, longest]) await ada.peer.send(ben.peer.key, new Uint8Array(bytes))
  expect(await codeOf(ada.peer.send(ben.peer.key, new Uint8Array(longest + 1)))).toBe('envelope_too_large')
  await expect.poll(() => ben.received.map(({ body }) => body.length)).toEqual([0, longest - 1, longest])
  const heard = new Promise<number>((resolve) => ben.peer.onEphemeral(({ body }) => resolve(body.length)))
  const note = '{"isEphemeral":true}'.length + 2
  ada.peer.sendEphemeral(ben.peer.key, new Uint8Array(longest - note))
  expect(await heard).toBe(longest - note)
})
