/** Tests a message that crashes its recipient's process at each delivery. */
import { join } from 'node:path'
import { connect } from '@sealpost/sdk'
import { toHex } from '@sealpost/std'
import { expect, test } from 'vitest'
import { until } from './process.ts'
import { type Place, World } from './world.ts'

const PROGRAM = join(import.meta.dirname, '../../../../packages/sdk/src/test/fragile-peer.ts')
const FATAL = 'fatal'
const BEFORE = ['1', '2', '3']
const AFTER = ['4', '5', '6']
/** The maximum number of runs: the message needs seven, and earlier ones may need as many. */
const RUNS_MAX = 30

/** Runs the program until it ends or receives the last message. Returns what it received. */
async function run({ identity: { signing, box }, ...place }: Place): Promise<string[]> {
  const secrets = { signing: toHex(signing.secretKey.subarray(0, 32)), box: toHex(box.secretKey) }
  const words = [process.execPath, PROGRAM, JSON.stringify({ ...place, ...secrets }), FATAL]
  const child = Bun.spawn(words, { stdin: 'ignore', stdout: 'pipe', stderr: 'inherit' })
  const decoder = new TextDecoder()
  let text = ''
  for await (const bytes of child.stdout) {
    text += decoder.decode(bytes, { stream: true })
    if (text.includes(`${AFTER.at(-1)}\n`)) break
  }
  child.kill('SIGKILL')
  await child.exited
  return text.split('\n').slice(0, -1)
}

test('a message that crashes its recipient becomes a dead letter and stops holding up later messages, and no other message becomes a dead letter', {
  timeout: 240_000,
}, async () => {
  await using world = await World.open({ FAILED_ATTEMPTS_MAX: '2', FAILED_ATTEMPTS_SPAN_MS: '1', SWEEP_MS: '50' })
  const [sender, fragile] = [await connect(await world.enrol()), await world.enrol()]
  for (const text of [...BEFORE, FATAL, ...AFTER]) await sender.send(fragile.identity.signing.publicKey, text)
  const handed: string[][] = []
  while (handed.length < RUNS_MAX && !handed.at(-1)?.includes(AFTER.at(-1)!)) handed.push(await run(fragile))
  const first = [...new Set(handed.flat())]
  expect(first).toEqual([...BEFORE, FATAL, ...AFTER])
  await until('it is a dead letter', async () => (await world.count('dead_letter')) > 0)
  const letters = await world.db.run(
    (sql) => sql<{ reason: string; strikes: number }[]>`select reason, strikes from dead_letter`,
  )
  expect(letters).toEqual([{ reason: 'strikes', strikes: 2 }])
  await sender.close()
})
