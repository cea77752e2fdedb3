/** Tests the certificates of sessions: expired ones are renewed, and those of other members are refused. */
import { cp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createDeviceInvite, readDeviceInvite } from '@sealpost/identity'
import { readKeyFile } from '@sealpost/identity/key-file'
import type { MemberSession } from '@sealpost/sdk/sessions'
import { beforeAll, expect, test } from 'vitest'
import { until } from './process.ts'
import { meeting, SessionProfile } from './session-profile.ts'
import { World } from './world.ts'

let shared: World
beforeAll(async () => {
  shared = await World.open()
  return () => shared[Symbol.asyncDispose]()
})

/** Lets the certificate of a session expire, according to the broker. */
async function expire(world: World, label: string): Promise<void> {
  await world.db.run(
    (sql) => sql`update member set vouched_until = now() - interval '1 second'
      where mesh_id = ${world.meshId}::uuid and name like ${`%/${label}`}`,
  )
}

const folderOf = (profile: SessionProfile, label: string): string => join(profile.folder, 'sessions', label)

/** Replaces the certificate in the folder of a session by one that is valid until `notAfterMs`. */
async function replaceCertificate(profile: SessionProfile, label: string, notAfterMs: number): Promise<void> {
  const { identity, brokerKey, meshId } = profile.place
  const invite = createDeviceInvite(identity.signing, { url: 'ws://127.0.0.1', brokerKey, meshId, label, notAfterMs })
  const { contents } = await readKeyFile(join(folderOf(profile, label), 'key.json'))
  if (contents.kind !== 'peer') throw new Error('not the keys of a session')
  const statement = readDeviceInvite(invite).statement(contents.identity.signing)
  await writeFile(join(folderOf(profile, label), 'certificate'), statement)
}

async function textOf(session: MemberSession): Promise<string> {
  for await (const message of session) {
    message.settle()
    return message.text()
  }
  throw (await session.closed) ?? new Error('the session was closed')
}

test('a session whose certificate has expired at the broker is renewed, and keeps its key and its mail', async () => {
  await using given = await meeting(shared)
  const { world, profile, sender } = given
  const first = await profile.open({ as: 'old' })
  await first.close()
  await sender.send(first.key, 'kept')
  await expire(world, 'old')
  const error = await (await profile.open({ as: 'old' })).closed
  expect([error?.code, error?.message]).toEqual([
    'certificate_expired',
    'The certificate of the session old has expired. It has been renewed. Start the session again.',
  ])
  const again = await profile.open({ as: 'old' })
  expect(again.key).toBe(first.key)
  expect(await textOf(again)).toBe('kept')
})

test('a start renews a certificate that has expired', async () => {
  await using given = await meeting(shared)
  const { world, profile, sender } = given
  const first = await profile.open({ as: 'old' })
  await first.close()
  await sender.send(first.key, 'kept')
  await expire(world, 'old')
  await replaceCertificate(profile, 'old', Date.now() - 1000)
  expect(await textOf(await profile.open({ as: 'old' }))).toBe('kept')
})

test('the host renews the certificate of a session whose process is gone, and receives its mail', async () => {
  await using given = await meeting(shared)
  const { world, profile, sender } = given
  const gone = await profile.open()
  await gone.close()
  await sender.send(gone.key, 'for the session that is gone')
  await expire(world, gone.label)
  expect(await textOf(await profile.open({ as: 'next' }))).toBe('for the session that is gone')
})

test('a session that the member has ended is cleared, although its certificate has expired too', async () => {
  await using given = await meeting(shared)
  const { world, profile, sender } = given
  const ended = await profile.open({ as: 'old' })
  await ended.close()
  await world.db.run(
    (sql) => sql`update member set revoked_at = now(), vouched_until = now()
      where mesh_id = ${world.meshId}::uuid and name like '%/old'`,
  )
  expect(await (await profile.open({ as: 'old' })).closed).toMatchObject({ code: 'revoked' })
  expect(await sender.members()).toHaveLength(2)
})

test('the folder of a session of another member is refused, with its certificate or without', async () => {
  await using given = await meeting(shared)
  const { world, profile } = given
  const original = await profile.open({ as: 'api' })
  await original.close()
  await using other = await SessionProfile.in(world)
  await cp(folderOf(profile, 'api'), folderOf(other, 'api'), { recursive: true })
  await expect(other.open({ as: 'api' })).rejects.toMatchObject({
    code: 'session_foreign',
    message: expect.stringMatching(/^The certificate of the session api names another member\. Delete the folder \S+,/),
  })
  await rm(join(folderOf(other, 'api'), 'certificate'))
  expect(await (await other.open({ as: 'api' })).closed).toMatchObject({ code: 'session_foreign' })
  expect((await profile.open({ as: 'api' })).key).toBe(original.key)
})

test('a session of an earlier version stores its certificate', async () => {
  await using given = await meeting(shared)
  const { profile } = given
  await (await profile.open({ as: 'api' })).close()
  const file = join(folderOf(profile, 'api'), 'certificate')
  await rm(file)
  await profile.open({ as: 'api' })
  await until('the certificate is stored', () => Bun.file(file).exists())
})
