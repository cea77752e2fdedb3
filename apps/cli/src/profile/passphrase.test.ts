import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { readSettings } from '../settings.ts'
import { Passphrase } from './passphrase.ts'
import { Profile } from './profile.ts'

const folder = mkdtempSync(join(tmpdir(), 'sealpost-passphrase-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const file = join(folder, 'passphrase')
writeFileSync(file, 'from the file\r\nsecond line\n')

/** A person who types these, one after the other, and what was asked. */
function person(...typed: string[]) {
  const asked: string[] = []
  const terminal = async (prompt: string) => {
    asked.push(prompt)
    return typed.shift() ?? ''
  }
  return { terminal, asked }
}

test('a file comes before the environment, and that before the person, who is asked once', async () => {
  const { terminal, asked } = person('typed', 'other')
  expect(await new Passphrase({ file, fromEnvironment: 'environment', terminal }).get()).toBe('from the file')
  expect(await new Passphrase({ fromEnvironment: 'environment', terminal }).get()).toBe('environment')
  const passphrase = new Passphrase({ terminal })
  expect([await passphrase.get(), await passphrase.get()]).toEqual(['typed', 'typed'])
  expect(asked).toEqual(['passphrase: '])
})

test('where nobody can be asked, and where the file is not there, it is said which way there is', async () => {
  await expect(new Passphrase({}).get()).rejects.toMatchObject({ code: 'key_file_locked' })
  await expect(new Passphrase({ file: join(folder, 'none') }).get()).rejects.toMatchObject({ code: 'file_missing' })
})

test('a new one is typed twice, and not empty', async () => {
  const { terminal, asked } = person('secret', 'secret')
  expect(await new Passphrase({ terminal }).choose()).toBe('secret')
  expect(asked).toEqual(['new passphrase: ', 'once more: '])
  await expect(new Passphrase(person('secret', 'secrets')).choose()).rejects.toMatchObject({ code: 'usage' })
  await expect(new Passphrase(person('')).choose()).rejects.toMatchObject({ code: 'usage' })
  await expect(new Passphrase({ fromEnvironment: '' }).choose()).rejects.toMatchObject({ code: 'usage' })
  expect(await new Passphrase({ file }).choose()).toBe('from the file')
})

test('a locked profile opens with its passphrase; whoever has keys is not asked for a new one', async () => {
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
