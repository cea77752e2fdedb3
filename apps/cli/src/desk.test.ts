import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type EnvelopeId, type PeerKey, SealpostError } from '@sealpost/sdk'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { askDesk, type HeldDesk, holdDesk } from './desk.ts'
import type { PeerCalls } from './peer-calls.ts'
import { Profile } from './profile.ts'

let home: string
let profile: Profile
let held: HeldDesk | null

beforeEach(async () => {
  home = mkdtempSync(join(tmpdir(), 'sealpost-cli-test-'))
  profile = new Profile({ home }, 'work')
  await profile.makeKeys()
  held = await holdDesk(profile)
})
afterEach(async () => {
  await held?.release()
  rmSync(home, { recursive: true, force: true })
})

const question = { to: 'ab'.repeat(32) as PeerKey, bodyBase64: 'AA==', priority: 'next', ttlSeconds: 0 } as const
const receipt = { envelopeId: 'cd'.repeat(16) as EnvelopeId, isDuplicate: false }

/** Only `send` is asked here. */
const callsWith = (send: PeerCalls['send']) => ({ send }) as PeerCalls

test('one holds the desk and answers the others, those too who came before it was ready', async () => {
  expect(await holdDesk(profile)).toBeNull()
  const early = askDesk(profile, 'send', question)
  held!.serve(callsWith(async (asked) => ({ ...receipt, isDuplicate: asked.bodyBase64 === 'AA==' })))
  expect(await early).toEqual({ ...receipt, isDuplicate: true })
})

test('a refusal keeps its code on the way', async () => {
  held!.serve(callsWith(() => Promise.reject(new SealpostError('outbox_full', 'Too much.', { isRetryable: true }))))
  await expect(askDesk(profile, 'send', question)).rejects.toMatchObject({ code: 'outbox_full', retryable: true })
})

test('a call that was taken is answered before the desk is given up, and then nobody is there', async () => {
  const taken = Promise.withResolvers<void>()
  const answer = Promise.withResolvers<typeof receipt>()
  held!.serve(
    callsWith(() => {
      taken.resolve()
      return answer.promise
    }),
  )
  const asked = askDesk(profile, 'send', question)
  await taken.promise
  const released = held!.release()
  held = null
  answer.resolve(receipt)
  expect(await asked).toEqual(receipt)
  await released
  await expect(askDesk(profile, 'send', question)).rejects.toMatchObject({ code: 'desk_gone' })
})

test('whoever calls while the desk is given up is answered, or told that nobody is there', async () => {
  const fates = new Set<string>()
  for (let round = 0; round < 20; round++) {
    held!.serve(callsWith(async () => receipt))
    const asked = Array.from({ length: 10 }, async () => {
      const code = await askDesk(profile, 'send', question).then(
        () => 'answered',
        (error: { code: string }) => error.code,
      )
      fates.add(code)
    })
    await held!.release()
    await Promise.all(asked)
    held = await holdDesk(profile)
  }
  expect([...fates].filter((fate) => fate !== 'desk_gone')).toEqual(['answered'])
})

test("the desk is the next one's only when the former has released it, and stays with that one", async () => {
  await held!.endCalls()
  expect(await holdDesk(profile)).toBeNull()
  const former = held!
  await former.release()
  held = await holdDesk(profile)
  await former.release()
  expect(await holdDesk(profile)).toBeNull()
  held!.serve(callsWith(async () => receipt))
  expect(await askDesk(profile, 'send', question)).toEqual(receipt)
})

test('the socket of a holder that was killed is taken over', async () => {
  await held!.release()
  const path = join(profile.folder, 'desk.sock')
  const program = `require('node:http').createServer().listen(${JSON.stringify(path)}, () => console.log('up'))`
  const holder = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'pipe', 'inherit'] })
  await once(holder.stdout, 'data')
  holder.kill('SIGKILL')
  await once(holder, 'close')
  expect(existsSync(path)).toBe(true) // else nothing is shown here
  held = await holdDesk(profile)
  expect(held).not.toBeNull()
})
