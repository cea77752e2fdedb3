/** Tests recurring messages with real processes that are killed, and a clock that is set. */
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { OperatingError } from '@sealpost/std'
import { expect, test } from 'vitest'
import { Profile } from '../profile/profile.ts'
import type { PeerCalls } from '../session/peer-calls.ts'
import { startSessionDaemon } from '../session/session-daemon.ts'
import { failureOf, jsonLinesOf, jsonOf, Machine } from './cli.ts'
import { clockObstacle, runKills } from './schedule-kills.ts'

test('each tick is sent once across kills of the broker and of the command, and steps of the clock by an hour', async () => {
  if (clockObstacle) process.stdout.write(`the clock is not set, because ${clockObstacle}\n`)
  const { received, repeated, gaps, forwardSteps, runnerKills } = await runKills(3)
  expect([repeated, gaps.length, runnerKills]).toEqual([0, forwardSteps, 1])
  expect(received).toBeGreaterThan(3)
})

test('schedules are listed and removed, and impossible ones are refused', async () => {
  await using machine = await Machine.withBroker('bob')
  const add = (...words: string[]) => machine.run(['schedule', 'add', ...words, '--json'])
  expect(failureOf(await add('0 0 30 2 *', 'bob', 'x'))).toEqual([2, 'schedule_malformed'])
  expect(failureOf(await add('0 9 * * *', 'bob', 'x', '--time-zone', 'Mars'))).toEqual([2, 'schedule_malformed'])
  expect(failureOf(await add('0 9 * * *', 'nobody', 'x'))).toEqual([3, 'name_unknown'])
  expect(failureOf(await add('0 9 * * *', '@everybody', 'x'))).toEqual([2, 'usage'])
  const { id } = jsonOf(await add('0 9 * * MON-FRI', 'bob', 'stand-up', '--time-zone', 'UTC'))
  const listed = jsonLinesOf(await machine.run(['schedule', 'list', '--json']))
  expect(listed).toMatchObject([{ id, to: 'bob', lastAtMs: null, timeZone: 'UTC' }])
  expect(new Date(listed[0].nextAtMs).toISOString()).toContain('T09:00:00.000Z')
  expect((await machine.run(['schedule', 'remove', id])).code).toBe(0)
  expect(failureOf(await machine.run(['schedule', 'remove', id, '--json']))).toEqual([3, 'schedule_unknown'])
})

test('a text over the limit of a message is sent as a file at each tick, and removed with its schedule', async () => {
  await using machine = await Machine.withBroker('bob')
  const text = `{tick} ${'x'.repeat(100_000)}`
  const added = await machine.run(['schedule', 'add', '* * * * * *', 'bob', '--json'], { stdin: text })
  const { id } = jsonOf(added)
  const running = machine.start(['schedule', 'run'])
  const folder = join(machine.folder, 'files')
  const heard = jsonLinesOf(
    await machine.run(['listen', '--count', '2', '--json', '--files', folder, '--profile', 'bob']),
  )
  await running.interrupt()
  for (const { text: preview, file } of heard) {
    const [tick] = preview.split(' ')
    expect(await Bun.file(file.path).text()).toBe(text.replace('{tick}', tick))
  }
  const kept = join(machine.environment.SEALPOST_HOME!, 'default', 'schedules')
  expect(await readdir(kept)).toEqual([`${id}.txt`])
  await machine.run(['schedule', 'remove', id])
  expect(await readdir(kept)).toEqual([])
})

test('the command starts although the command that has the connection is killed at that moment', async () => {
  await using machine = await Machine.withBroker('bob')
  const holder = await startSessionDaemon(new Profile({ home: machine.environment.SEALPOST_HOME! }, 'default'))
  const lastTicks = () => {
    void holder!.release()
    throw new OperatingError('maybe_sent', 'as if this process was killed')
  }
  holder!.serve({ lastTicks } as unknown as PeerCalls)
  const running = machine.start(['schedule', 'run'])
  await running.until('it runs', ({ stderr }) => stderr.includes('running 0 schedules'))
  expect(running.stderr).toContain('maybe_sent')
})
