import { chmodSync, existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { MeshId, PeerKey } from '@sealpost/std'
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest'
import { readSettings } from '../settings.ts'
import { Contacts } from './contacts.ts'
import { Passphrase } from './passphrase.ts'
import { Profile } from './profile.ts'

let home: string
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'sealpost-cli-test-'))
})
afterEach(() => rmSync(home, { recursive: true, force: true }))

const [one, other] = ['11', '22'].map((byte) => byte.repeat(32) as PeerKey) as [PeerKey, PeerKey]

describe('a profile', () => {
  const membership = { url: 'ws://127.0.0.1:1', brokerKey: one, meshId: 'cd'.repeat(16) as MeshId, name: 'alice' }

  test('stores keys and membership, readable only by their owner', async () => {
    const profile = new Profile({ home }, 'work')
    expect(profile.hasKeys).toBe(false)
    const made = await profile.makeKeys()
    await profile.writeMembership(membership)
    expect((await profile.readKeys()).identity).toEqual(made)
    expect(await profile.readMembership()).toEqual(membership)
    expect(
      [profile.folder, profile.keyFile, profile.membershipFile].map((path) => statSync(path).mode & 0o777),
    ).toEqual([0o700, 0o600, 0o600])
  })

  test("stores the addresses of its mesh's current cell and of the original one", async () => {
    const profile = new Profile({ home }, 'work')
    await profile.writeMembership(membership)
    await profile.writeCell(['wss://south.example', 'wss://south-2.example'])
    expect(await profile.readMembership()).toEqual({ ...membership, url: 'wss://south.example' })
    expect(await profile.readFirstUrl()).toBe(membership.url)
    await profile.writeCell([])
    expect(await profile.readMembership()).toEqual(membership)
  })

  test('reports missing keys and a missing membership', async () => {
    const profile = new Profile({ home }, 'work')
    await expect(profile.readKeys()).rejects.toMatchObject({ code: 'profile_missing' })
    await expect(profile.readMembership()).rejects.toMatchObject({ code: 'not_joined' })
    expect(existsSync(profile.folder)).toBe(false)
  })

  test('warns of a key file that others can read, and refuses a damaged membership', async () => {
    const profile = new Profile({ home }, 'work')
    await profile.makeKeys()
    chmodSync(profile.keyFile, 0o644)
    expect((await profile.readKeys()).warning).toMatchObject({ code: 'key_file_exposed' })
    writeFileSync(profile.membershipFile, '{"url":')
    await expect(profile.findMembership()).rejects.toMatchObject({ code: 'file_malformed' })
  })

  test.each(['', '.', '../up', 'a/b', 'a b', '-p', 'x'.repeat(65)])('refuses the name %j', (name) => {
    expect(() => new Profile({ home }, name)).toThrow('The name of a profile')
  })
})

describe('contacts', () => {
  const path = () => join(home, 'contacts.json')

  test('a name is pinned once, and resolves in both directions after a restart', async () => {
    const contacts = await Contacts.read(path())
    expect(await contacts.pin('bob', one)).toBe(true)
    expect(await contacts.pin('bob', one)).toBe(false)
    const later = await Contacts.read(path())
    expect([later.keyOf('bob'), later.nameOf(one), later.keyOf('carol')]).toEqual([one, 'bob', undefined])
  })

  test('a different key for a known name is refused until it is accepted', async () => {
    const contacts = await Contacts.read(path())
    await contacts.pin('bob', one)
    await expect(contacts.pin('bob', other)).rejects.toMatchObject({ code: 'key_changed' })
    expect((await Contacts.read(path())).keyOf('bob')).toBe(one)
    await contacts.accept('bob', other)
    expect((await Contacts.read(path())).keyOf('bob')).toBe(other)
  })

  test('a long-running command undoes no pins of others', async () => {
    const long = await Contacts.read(path())
    await (await Contacts.read(path())).pin('bob', one)
    await long.pin('carol', other)
    expect(long.keyOf('bob')).toBe(one)
    await expect(long.pin('bob', other)).rejects.toMatchObject({ code: 'key_changed' })
    const now = await Contacts.read(path())
    expect([now.keyOf('bob'), now.keyOf('carol')]).toEqual([one, other])
  })

  test('concurrent pins of several names are all kept', async () => {
    const names = Array.from({ length: 10 }, (_, i) => `peer-${i}`)
    await Promise.all(names.map(async (name) => (await Contacts.read(path())).pin(name, one)))
    const now = await Contacts.read(path())
    expect(names.map((name) => now.keyOf(name))).toEqual(names.map(() => one))
  })

  test.each(['', 'x'.repeat(65), 'a\nb', 'b\u202eob', 'ab'.repeat(32)])(
    'the name %j cannot be pinned',
    async (name) => {
      const contacts = await Contacts.read(path())
      await expect(contacts.pin(name, one)).rejects.toMatchObject({ code: 'name_unusable' })
    },
  )

  test('names of Object.prototype members behave like any other names', async () => {
    const contacts = await Contacts.read(path())
    expect(contacts.keyOf('constructor')).toBeUndefined()
    await contacts.pin('__proto__', one)
    expect((await Contacts.read(path())).keyOf('__proto__')).toBe(one)
  })
})

test('settings come from the environment, and specific variables override general ones', () => {
  expect(readSettings({ XDG_CONFIG_HOME: '/c', XDG_DATA_HOME: '/d' })).toMatchObject({
    home: '/c/sealpost',
    dataFolder: '/d/sealpost',
    profile: 'default',
    hasColors: null,
  })
  expect(
    readSettings({ SEALPOST_HOME: '/h', XDG_CONFIG_HOME: '/c', SEALPOST_PROFILE: 'work', NO_COLOR: '1' }),
  ).toMatchObject({ home: '/h', profile: 'work', hasColors: false })
})

test('a database URL can come from a file, and is never shown', () => {
  const file = join(home, 'url')
  writeFileSync(file, 'postgres://file\n')
  expect(readSettings({ DATABASE_URL_FILE: file }).databaseUrl()).toBe('postgres://file')
  expect(() => readSettings({ DATABASE_URL_FILE: join(home, 'absent') }).databaseUrl()).toThrow("Can't read the file")
})

const folder = mkdtempSync(join(tmpdir(), 'sealpost-passphrase-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const file = join(folder, 'passphrase')
writeFileSync(file, 'from the file\r\nsecond line\n')

/** Simulates a user who types these inputs, and records the prompts. */
function person(...typed: string[]) {
  const asked: string[] = []
  const terminal = async (prompt: string) => {
    asked.push(prompt)
    return typed.shift() ?? ''
  }
  return { terminal, asked }
}

test('a file overrides the environment, which overrides the prompt, and the prompt appears once', async () => {
  const { terminal, asked } = person('typed', 'other')
  expect(await new Passphrase({ file, fromEnvironment: 'environment', terminal }).get()).toBe('from the file')
  expect(await new Passphrase({ fromEnvironment: 'environment', terminal }).get()).toBe('environment')
  const passphrase = new Passphrase({ terminal })
  expect([await passphrase.get(), await passphrase.get()]).toEqual(['typed', 'typed'])
  expect(asked).toEqual(['passphrase: '])
})

test('without a terminal or with a missing file, the error names the alternatives', async () => {
  await expect(new Passphrase({}).get()).rejects.toMatchObject({ code: 'key_file_locked' })
  await expect(new Passphrase({ file: join(folder, 'none') }).get()).rejects.toMatchObject({ code: 'file_missing' })
})

test('a new passphrase is typed twice and cannot be empty', async () => {
  const { terminal, asked } = person('secret', 'secret')
  expect(await new Passphrase({ terminal }).choose()).toBe('secret')
  expect(asked).toEqual(['new passphrase: ', 'repeat it: '])
  await expect(new Passphrase(person('secret', 'secrets')).choose()).rejects.toMatchObject({ code: 'usage' })
  await expect(new Passphrase(person('')).choose()).rejects.toMatchObject({ code: 'usage' })
  await expect(new Passphrase({ fromEnvironment: '' }).choose()).rejects.toMatchObject({ code: 'usage' })
  expect(await new Passphrase({ file }).choose()).toBe('from the file')
})

test('a locked profile opens with its passphrase, and a profile with keys prompts for no new one', async () => {
  const profile = new Profile({ home: folder }, 'locked', new Passphrase(person('secret', 'secret')))
  const identity = await profile.makeLockedKeys()
  const again = new Profile({ home: folder }, 'locked', new Passphrase(person('secret')))
  expect((await again.readKeys()).identity).toEqual(identity)
  const { terminal, asked } = person('other', 'other')
  const twice = new Profile({ home: folder }, 'locked', new Passphrase({ terminal }))
  await expect(twice.makeLockedKeys()).rejects.toMatchObject({ code: 'key_file_exists' })
  expect(asked).toEqual([])
  await expect(twice.readKeys()).rejects.toMatchObject({ code: 'passphrase_wrong' })
})

test('programs that a command starts do not get the passphrase', () => {
  const settings = readSettings({ SEALPOST_PASSPHRASE: 'secret', PATH: '/bin' })
  expect(settings.passphrase).toBe('secret')
  expect(JSON.stringify(settings.environment)).toBe('{"PATH":"/bin"}')
})
