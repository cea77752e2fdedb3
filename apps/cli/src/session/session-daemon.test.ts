import { once } from 'node:events'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { rename } from 'node:fs/promises'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type EnvelopeId, type PeerKey, SealpostError } from '@sealpost/sdk'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { Profile } from '../profile/profile.ts'
import type { PeerCalls } from './peer-calls.ts'
import { callSessionDaemon, type SessionDaemon, startSessionDaemon } from './session-daemon.ts'

let home: string
let profile: Profile
let held: SessionDaemon | null

beforeEach(async () => {
  home = mkdtempSync(join(tmpdir(), 'sealpost-cli-test-'))
  profile = new Profile({ home }, 'work')
  await profile.makeKeys()
  held = await startSessionDaemon(profile)
})
afterEach(async () => {
  await held?.release()
  rmSync(home, { recursive: true, force: true })
})

const params = { to: 'ab'.repeat(32) as PeerKey, bodyBase64: 'AA==', priority: 'next', ttlSeconds: 0 } as const
const receipt = { envelopeId: 'cd'.repeat(16) as EnvelopeId, isDuplicate: false }

/** Returns calls with only `send`, the only one that these tests make. */
const callsWith = (send: PeerCalls['send']) => ({ send }) as PeerCalls

test('one process holds the daemon and answers the others, including those that called before it was ready', async () => {
  expect(await startSessionDaemon(profile)).toBeNull()
  const early = callSessionDaemon(profile, 'send', params)
  held!.serve(callsWith(async (asked) => ({ ...receipt, isDuplicate: asked.bodyBase64 === 'AA==' })))
  expect(await early).toEqual({ ...receipt, isDuplicate: true })
})

test('a refusal keeps its code across the socket', async () => {
  held!.serve(callsWith(() => Promise.reject(new SealpostError('outbox_full', 'Too much.', { isRetryable: true }))))
  await expect(callSessionDaemon(profile, 'send', params)).rejects.toMatchObject({
    code: 'outbox_full',
    retryable: true,
  })
})

test('an accepted call is answered before the daemon is released, and afterwards no daemon runs', async () => {
  const taken = Promise.withResolvers<void>()
  const answer = Promise.withResolvers<typeof receipt>()
  held!.serve(
    callsWith(() => {
      taken.resolve()
      return answer.promise
    }),
  )
  const asked = callSessionDaemon(profile, 'send', params)
  await taken.promise
  const released = held!.release()
  held = null
  answer.resolve(receipt)
  expect(await asked).toEqual(receipt)
  await released
  await expect(callSessionDaemon(profile, 'send', params)).rejects.toMatchObject({ code: 'daemon_gone' })
})

test('a call during the release is answered or learns that no daemon runs', async () => {
  const fates = new Set<string>()
  for (let round = 0; round < 20; round++) {
    held!.serve(callsWith(async () => receipt))
    const asked = Array.from({ length: 10 }, async () => {
      const code = await callSessionDaemon(profile, 'send', params).then(
        () => 'answered',
        (error: { code: string }) => error.code,
      )
      fates.add(code)
    })
    await held!.release()
    await Promise.all(asked)
    held = await startSessionDaemon(profile)
  }
  expect([...fates].filter((outcome) => outcome !== 'daemon_gone')).toEqual(['answered'])
})

test('the next process gets the daemon only after the former has released it, and keeps it', async () => {
  await held!.endCalls()
  expect(await startSessionDaemon(profile)).toBeNull()
  const former = held!
  await former.release()
  held = await startSessionDaemon(profile)
  await former.release()
  expect(await startSessionDaemon(profile)).toBeNull()
  held!.serve(callsWith(async () => receipt))
  expect(await callSessionDaemon(profile, 'send', params)).toEqual(receipt)
})

test('the socket of a killed holder is taken over', async () => {
  await held!.release()
  const path = join(profile.folder, 'session.sock')
  const holder = createServer().listen(path)
  await once(holder, 'listening')
  await rename(path, `${path}.left`) // keeps the file, as a kill would; a closed server removes it
  holder.close()
  await once(holder, 'close')
  await rename(`${path}.left`, path)
  await expect(callSessionDaemon(profile, 'send', params)).rejects.toMatchObject({ code: 'daemon_gone' })
  expect(existsSync(path)).toBe(true) // otherwise, the test would prove nothing
  held = await startSessionDaemon(profile)
  expect(held).not.toBeNull()
})
