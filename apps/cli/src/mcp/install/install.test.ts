import { spawnSync } from 'node:child_process'
import { chmod, lstat, mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, relative } from 'node:path'
import { processStartedAt } from '@sealpost/sdk/file-store'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { runHere } from '../../test/cli.ts'
import { clientNames } from './clients.ts'
import type { FileContent } from './config-text.ts'
import { applyChange, planInstall } from './installed-files.ts'

const MAIN = join(import.meta.dirname, '../../main.ts')

let home: string
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'sealpost mcp ')) // the space must not break a hook
})
afterEach(() => rm(home, { recursive: true, force: true }))

const environment = () => ({
  HOME: home,
  PATH: '/usr/bin:/bin',
  SEALPOST_HOME: at('.config/sealpost'),
  NO_COLOR: '1',
  BUN_RUNTIME_TRANSPILER_CACHE_PATH: '0', // Bun would write into the home folder
})
const run = (...words: string[]) => runHere(['mcp', ...words], environment())
const install = (client: string, ...words: string[]) => run('install', client, '--yes', '--profile', 'agent', ...words)
const uninstall = (client: string, ...words: string[]) => run('uninstall', client, '--yes', ...words)

/** Runs the command as a process, in a folder. */
const spawned = (cwd: string, ...words: string[]) =>
  spawnSync(process.execPath, [MAIN, 'mcp', ...words], { cwd, env: environment(), input: '', encoding: 'utf8' })

const at = (...path: string[]) => join(home, ...path)

async function put(path: string, text: string): Promise<void> {
  await mkdir(dirname(at(path)), { recursive: true })
  await writeFile(at(path), text)
}

const read = (path: string) => readFile(at(path), 'utf8')

/** Returns the text of each file below the home folder, without the record of the installations. */
async function tree(): Promise<Record<string, string>> {
  const entries = await readdir(home, { recursive: true, withFileTypes: true })
  const paths = entries.filter((entry) => !entry.isDirectory()).map(({ parentPath, name }) => join(parentPath, name))
  const texts = await Promise.all(
    paths.map(async (path) => [relative(home, path), await readFile(path, 'utf8')] as const),
  )
  return Object.fromEntries(texts.filter(([path]) => !path.endsWith('.mcp-installs.json')).toSorted())
}

const claudeJson =
  '{\n  // my servers\n  "mcpServers": {\n    "other": { "command": "x" } // keep\n  },\n  "theme": "dark"\n}\n'

describe.each(clientNames)('%s', (client) => {
  test('an installation can be repeated, and the uninstallation restores every byte', async () => {
    await put('notes.txt', 'mine')
    const before = await tree()
    const first = await install(client, '--json')
    expect([first.code, JSON.parse(first.out).isApplied]).toEqual([0, true])
    const installed = await tree()
    expect(Object.keys(installed).length).toBeGreaterThan(1)
    const again = await install(client)
    expect([again.code, again.out]).toEqual([0, ''])
    expect(again.err).toContain('The configuration is up to date.')
    expect(await tree()).toEqual(installed)
    expect((await uninstall(client)).code).toBe(0)
    expect(await tree()).toEqual(before)
    expect((await readdir(home)).toSorted()).toEqual(['.config', 'notes.txt'])
  })
})

test('the change is shown as a diff, and --dry-run changes nothing', async () => {
  await put('.claude.json', claudeJson)
  const before = await tree()
  const { code, out } = await run('install', 'claude', '--dry-run')
  expect(code).toBe(0)
  expect(out).toContain(`--- ${at('.claude.json')}\n+++ ${at('.claude.json')}\n`)
  expect(out).toContain('-    "other": { "command": "x" } // keep\n+    "other": { "command": "x" }, // keep\n')
  expect(out).toContain(`--- /dev/null\n+++ ${at('.claude/skills/sealpost/SKILL.md')}\n`)
  expect(await tree()).toEqual(before)
})

test('the server starts with the profile and the options, and the file keeps its comments and a backup', async () => {
  await put('.claude.json', claudeJson)
  const { err } = await install(
    'claude',
    '--as',
    'api',
    '--no-send',
    '--files',
    '/f',
    '--max-age',
    '2h',
    '--to',
    'a',
    'b',
  )
  expect(err).toContain(`backup: ${at('.claude.json.sealpost.bak')}`)
  expect(await read('.claude.json.sealpost.bak')).toBe(claudeJson)
  const text = await read('.claude.json')
  expect(text).toContain('// my servers')
  const { mcpServers } = JSON.parse(text.replace(/\/\/.*$/gm, ''))
  expect(mcpServers.sealpost.args.slice(-13)).toEqual([
    ...[
      'mcp',
      '--profile',
      'agent',
      '--as',
      'api',
      '--no-send',
      '--files',
      '/f',
      '--max-age',
      '7200s',
      '--to',
      'a',
      'b',
    ],
  ])
})

test('a second installation with other options replaces the first', async () => {
  await put('.claude.json', claudeJson)
  const before = await tree()
  await install('claude')
  expect((await run('install', 'claude', '--yes', '--profile', 'second', '--no-hooks')).code).toBe(0)
  const files = await tree()
  expect(files['.claude.json']).toContain('"second"')
  expect(files['.claude.json']).not.toContain('"agent"')
  expect(Object.keys(files)).not.toContain('.claude/settings.json')
  await uninstall('claude')
  expect(await tree()).toEqual(before)
})

test('a client that rewrites its file, and a user who adds to it, keep their changes', async () => {
  await put('.claude.json', claudeJson)
  await install('claude')
  const config = JSON.parse((await read('.claude.json')).replace(/\/\/.*$/gm, ''))
  await put('.claude.json', JSON.stringify({ ...config, mcpServers: { ...config.mcpServers, mine: {} }, userID: 7 }))
  const settings = JSON.parse(await read('.claude/settings.json'))
  settings.hooks.Stop.unshift({ hooks: [{ type: 'command', command: 'say done' }] })
  await put('.claude/settings.json', JSON.stringify(settings, null, 4))
  await uninstall('claude')
  expect(JSON.parse(await read('.claude.json'))).toEqual({
    mcpServers: { other: { command: 'x' }, mine: {} },
    theme: 'dark',
    userID: 7,
  })
  expect(JSON.parse(await read('.claude/settings.json'))).toEqual({
    hooks: { Stop: [{ hooks: [{ type: 'command', command: 'say done' }] }] },
  })
})

test('lines that a user adds elsewhere in the file do not keep the uninstallation from restoring the rest', async () => {
  const toml = '# mine\nmodel = "m"\n\n[mcp_servers.other]\ncommand = "x"\n'
  await put('.codex/config.toml', toml)
  await put('.codex/AGENTS.md', '# Rules\n')
  await install('codex')
  await put('.codex/config.toml', `# first\n${await read('.codex/config.toml')}\n[last]\na = 1\n`)
  await put('.codex/AGENTS.md', `${await read('.codex/AGENTS.md')}\n# More\n`)
  await uninstall('codex')
  expect(await read('.codex/config.toml')).toBe(`# first\n${toml}\n[last]\na = 1\n`)
  expect(await read('.codex/AGENTS.md')).toBe('# Rules\n\n# More\n')
  expect(Object.keys(await tree())).not.toContain('.codex/hooks.json')
})

test('a skill that the user has changed stays', async () => {
  await install('claude')
  const path = '.claude/skills/sealpost/SKILL.md'
  await put(path, `${await read(path)}\nMy own rule.\n`)
  expect((await uninstall('claude')).err).toContain(`${at(path)} was changed, so it stays.`)
  expect(Object.keys(await tree())).toEqual([path])
})

test('an installation that the user has undone by hand can be uninstalled once', async () => {
  await install('zed')
  await rm(at('.config/zed'), { recursive: true })
  expect((await uninstall('zed')).code).toBe(0)
  expect((await uninstall('zed')).code).toBe(3)
})

test('a file that another program changes meanwhile is not replaced', async () => {
  await put('mcp.json', '{}')
  const content: FileContent = { kind: 'json', entries: [{ kind: 'property', path: ['a'], value: 1 }] }
  const files = [{ path: at('mcp.json'), content }]
  const [change] = await planInstall({ files, found: { own: undefined, shared: [] }, isForced: false })
  await put('mcp.json', '{ "b": 2 }')
  await expect(applyChange(change!)).rejects.toMatchObject({ code: 'config_changed' })
  expect(await tree()).toEqual({ 'mcp.json': '{ "b": 2 }' })
})

test('a skill of two clients stays until both are uninstalled', async () => {
  await install('vscode')
  await install('copilot')
  await uninstall('vscode')
  expect(Object.keys(await tree())).toEqual([
    '.copilot/hooks/sealpost.json',
    '.copilot/mcp-config.json',
    '.copilot/skills/sealpost/SKILL.md',
  ])
  await uninstall('copilot')
  expect(await tree()).toEqual({})
})

test('a configuration of Sealpost by hand is a conflict; --force replaces it until the uninstallation', async () => {
  const own = '{\n  "mcpServers": {\n    "sealpost": { "command": "mine" }\n  }\n}\n'
  await put('.cursor/mcp.json', own)
  const refused = await install('cursor', '--json')
  expect([refused.code, JSON.parse(refused.err.trim().split('\n').at(-1)!).error.code]).toEqual([5, 'mcp_entry_exists'])
  expect(await tree()).toEqual({ '.cursor/mcp.json': own })
  expect((await install('cursor', '--force')).code).toBe(0)
  expect(await read('.cursor/mcp.json')).toContain('"--profile"')
  await put('.cursor/mcp.json', JSON.stringify(JSON.parse(await read('.cursor/mcp.json'))))
  await uninstall('cursor')
  expect(JSON.parse(await read('.cursor/mcp.json'))).toEqual(JSON.parse(own))
})

test('the mode of the file stays, and a link stays a link', async () => {
  await put('dotfiles/mcp.json', '{}\n')
  await chmod(at('dotfiles/mcp.json'), 0o640)
  await mkdir(at('.cursor'))
  await symlink('../dotfiles/mcp.json', at('.cursor/mcp.json'))
  await install('cursor')
  expect((await lstat(at('.cursor/mcp.json'))).isSymbolicLink()).toBe(true)
  expect(await read('dotfiles/mcp.json')).toContain('sealpost')
  for (const path of ['dotfiles/mcp.json', '.cursor/mcp.json.sealpost.bak'])
    expect((await stat(at(path))).mode & 0o777).toBe(0o640)
  await uninstall('cursor')
  expect(await tree()).toEqual({ 'dotfiles/mcp.json': '{}\n', '.cursor/mcp.json': '{}\n' })
  expect((await stat(at('dotfiles/mcp.json'))).mode & 0o777).toBe(0o640)
})

describe('what the command refuses leaves every file as it is', () => {
  const failure = async (client: string, ...words: string[]) => {
    const { code, err } = await install(client, '--json', ...words)
    return [code, JSON.parse(err.trim().split('\n').at(-1)!).error.code]
  }

  test.each([
    ['malformed JSON', '{ "a": 1,, }'],
    ['malformed UTF-8', new Uint8Array([0x7b, 0xff, 0x7d])],
    ['a section of another type', '{ "mcpServers": "none" }'],
  ])('%s', async (_, bytes) => {
    await mkdir(at('.cursor'))
    await writeFile(at('.cursor/mcp.json'), bytes)
    expect(await failure('cursor')).toEqual([1, 'config_malformed'])
    expect(await readdir(at('.cursor'))).toEqual(['mcp.json'])
    expect(new Uint8Array(await readFile(at('.cursor/mcp.json')))).toEqual(new Uint8Array(Buffer.from(bytes)))
  })

  test.each([
    ['a malformed second file', '.claude/settings.json', 'config_malformed'],
    ['a file in the place of a folder', '.claude/skills', 'config_unreadable'],
  ])('%s: the first file is not changed either', async (_, path, code) => {
    await put('.claude.json', claudeJson)
    await put(path, 'x')
    expect(await failure('claude')).toEqual([1, code])
    expect(await tree()).toEqual({ '.claude.json': claudeJson, [path]: 'x' })
  })

  test('a read-only file', async () => {
    await put('.cursor/mcp.json', '{}')
    await chmod(at('.cursor/mcp.json'), 0o444)
    expect(await failure('cursor')).toEqual([1, 'config_readonly'])
    expect(await tree()).toEqual({ '.cursor/mcp.json': '{}' })
  })

  test('a folder in the place of the file', async () => {
    await mkdir(at('.cursor/mcp.json'), { recursive: true })
    expect(await failure('cursor')).toEqual([1, 'config_unreadable'])
  })

  test('a link to nowhere', async () => {
    await mkdir(at('.cursor'))
    await symlink('absent.json', at('.cursor/mcp.json'))
    expect(await failure('cursor')).toEqual([1, 'config_unreadable'])
  })

  test('a file that can not be written, after another one was written: that one is restored', async () => {
    await put('.claude.json', claudeJson)
    await put('.claude/settings.json', '{}')
    await mkdir(at('.claude/settings.json.sealpost.bak'))
    expect(await failure('claude')).toEqual([1, 'config_unwritable'])
    expect(await tree()).toEqual({ '.claude.json': claudeJson, '.claude/settings.json': '{}' })
    expect((await uninstall('claude')).code).toBe(3)
  })

  test('an unknown client, a client without projects, and an uninstallation of nothing', async () => {
    expect(await failure('emacs')).toEqual([2, 'usage'])
    expect(await failure('windsurf', '--project')).toEqual([2, 'scope_unsupported'])
    expect(await uninstall('zed')).toMatchObject({ code: 3, err: expect.stringContaining('(mcp_not_installed)') })
  })

  test('a missing confirmation without a terminal', () => {
    const { status, stderr } = spawned(home, 'install', 'zed')
    expect([status, stderr]).toEqual([2, expect.stringContaining('Add --yes to make this change')])
  })
})

test('a client that is not installed, and a profile without a mesh, are warnings', async () => {
  const { err } = await install('zed')
  expect(err).toContain('Zed does not seem to be installed.')
  expect(err).toContain('The profile agent belongs to no mesh yet.')
})

test('--project changes only the project', async () => {
  await mkdir(at('app'))
  expect(spawned(at('app'), 'install', 'claude', '--project', '--yes').status).toBe(0)
  const paths = ['.claude/settings.local.json', '.claude/skills/sealpost/SKILL.md', '.mcp.json']
  expect(Object.keys(await tree())).toEqual(paths.map((path) => join('app', path)))
  expect(spawned(home, 'uninstall', 'claude', '--project', '--yes').status).toBe(3)
  expect(spawned(at('app'), 'uninstall', 'claude', '--project', '--yes').status).toBe(0)
  expect(await tree()).toEqual({})
})

test('at a terminal the command asks, and only yes makes the change', async () => {
  const ask = async (answer: string) => {
    let shown = ''
    const child = Bun.spawn([process.execPath, MAIN, 'mcp', 'install', 'zed'], {
      env: environment(),
      terminal: {
        data(terminal, bytes) {
          const isAsked = shown.includes('[y/N]')
          shown += new TextDecoder().decode(bytes)
          if (!isAsked && shown.includes('[y/N]')) terminal.write(answer)
        },
      },
    })
    return { code: await child.exited, shown }
  }
  for (const answer of ['n\n', '\n', '\x03']) {
    const { code, shown } = await ask(answer)
    expect([code, shown]).toEqual([
      answer === '\x03' ? 130 : 0,
      expect.stringContaining('Change the configuration of Zed?'),
    ])
    expect(await tree()).toEqual({})
  }
  expect((await ask('y\n')).code).toBe(0)
  expect(Object.keys(await tree())).toEqual(['.config/zed/settings.json'])
})

test('the line of a hook sets the status of the server with a common ancestor, and never fails', async () => {
  await install('claude')
  const { hooks } = JSON.parse(await read('.claude/settings.json'))
  const lineOf = (event: string): string => hooks[event][0].hooks[0].command
  const call = (event: string) => {
    const { status, stdout } = spawnSync('sh', ['-c', lineOf(event)], {
      env: environment(),
      input: '{}',
      encoding: 'utf8',
    })
    expect([status, stdout]).toEqual([0, '{}\n'])
  }
  call('UserPromptSubmit') // the profile does not exist
  await put('.config/sealpost/agent/membership.json', JSON.stringify(MEMBERSHIP))
  call('UserPromptSubmit') // no server runs
  const agents = '.config/sealpost/agent/agents'
  const server = `${process.pid}-${await processStartedAt(process.pid)}`
  await put(`${agents}/4194305-1.json`, JSON.stringify({ pid: 4194305, folder: '/' })) // left by a server that has ended
  await put(`${agents}/${server}.json`, JSON.stringify({ pid: process.pid, folder: '/' }))
  for (const [event, availability] of [
    ['PreToolUse', 'working'],
    ['Stop', 'idle'],
  ] as const) {
    call(event)
    expect(JSON.parse(await read(`${agents}/${server}.status.json`))).toEqual({ availability, summary: '' })
  }
  expect((await readdir(join(home, agents))).sort()).toEqual([`${server}.json`, `${server}.status.json`])
})

const MEMBERSHIP = { url: 'ws://127.0.0.1:9', brokerKey: '0'.repeat(64), meshId: '0'.repeat(32), name: 'agent' }
