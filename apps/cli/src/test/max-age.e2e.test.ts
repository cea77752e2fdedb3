/** Tests that `--max-age` rejects messages sealed too long ago. */
import { expect, test } from 'vitest'
import { Machine } from './cli.ts'

test.each([
  ['listen', ['listen', '--max-age', '2s', '--profile', 'bob']],
  ['mcp', ['mcp', '--max-age', '2s', '--profile', 'bob']],
])('%s rejects older messages', async (_, words) => {
  await using machine = await Machine.withBroker('bob')
  expect((await machine.run(['send', 'bob', 'long ago'])).code).toBe(0)
  const sentAtMs = Date.now()
  await expect.poll(() => Date.now() - sentAtMs).toBeGreaterThan(2_000)
  const bob = machine.start(words)
  await bob.until('it rejected the message', ({ stderr }) =>
    /Rejected a message from .* because it is older than --max-age/.test(stderr),
  )
  await bob.interrupt()
  expect(bob.stdout).not.toContain('long ago')
  const heard = machine.start(['listen', '--count', '1', '--max-age', '1h', '--profile', 'bob'])
  await heard.until('it listens', ({ stderr }) => stderr.includes('listening'))
  expect((await machine.run(['send', 'bob', 'just now'])).code).toBe(0)
  expect((await heard.ended()).stdout).toContain('just now')
})
