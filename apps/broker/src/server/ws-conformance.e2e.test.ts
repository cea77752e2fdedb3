/**
 * Tests the broker's connections below the protocol frames: RFC 6455, with cases for each group of the Autobahn
 * testsuite.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Arena } from '../test/hostile.ts'
import type { WireClient } from '../test/wire.ts'
import { type ConformanceCase, conformanceCases } from '../test/ws-conformance.ts'

const FENCE = 99

let arena: Arena
beforeAll(async () => {
  arena = await Arena.open()
})
afterAll(() => arena[Symbol.asyncDispose]())

test.each(conformanceCases.map((one) => [nameOf(one), one] as const))('%s', async (_, one) => {
  const client = await arena.session(one.form)
  await say(client, one)
  expect(/^\d/.test(one.answer) ? await closeOf(client) : await heardBy(client)).toBe(one.answer)
  client.destroy()
})

test('other clients noticed nothing', async () => {
  await arena.checkUnharmed()
})

function nameOf({ id, says, isDripped }: ConformanceCase): string {
  return `${id}: ${says}${isDripped ? ', byte by byte' : ''}`
}

async function say(client: WireClient, { parts, isDripped }: ConformanceCase): Promise<void> {
  if (!isDripped) return client.sendBytes(Buffer.concat(parts))
  for (const byte of Buffer.concat(parts)) {
    client.sendBytes(Uint8Array.of(byte))
    await new Promise(setImmediate)
  }
}

async function closeOf(client: WireClient): Promise<string> {
  return String((await client.closed).code)
}

/** Returns everything up to the reply to a final ping, which proves that the session continues. */
async function heardBy(client: WireClient): Promise<string> {
  client.send({ type: 'ping', ref: FENCE })
  const types: string[] = []
  for (;;) {
    const frame = await client.next('pong', 'nack')
    if (frame.type === 'pong' && frame.ref === FENCE)
      return [...client.pongs.map((said) => `"${said}"`), ...types].join(' ')
    types.push(frame.type)
  }
}
