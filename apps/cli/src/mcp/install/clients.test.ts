import { parse as parseToml } from 'smol-toml'
import { describe, expect, test } from 'vitest'
import type { z } from 'zod'
import * as schemas from '../../test/client-schemas.ts'
import { type ClientHost, type ClientName, clientNames, clients, type Scope, type ServerSetup } from './clients.ts'
import { putContent } from './config-text.ts'
import { launchCommand, type RunningProgram, shellLine } from './launch-command.ts'

const SCHEMAS: Readonly<Record<ClientName, { readonly server: z.ZodType; readonly hooks?: z.ZodType }>> = {
  claude: { server: schemas.claudeServers, hooks: schemas.claudeHooks },
  'claude-desktop': { server: schemas.claudeDesktopServers },
  codex: { server: schemas.codexServers, hooks: schemas.codexHooks },
  cursor: { server: schemas.cursorServers, hooks: schemas.cursorHooks },
  vscode: { server: schemas.vscodeServers },
  windsurf: { server: schemas.windsurfServers, hooks: schemas.windsurfHooks },
  gemini: { server: schemas.geminiServers, hooks: schemas.geminiHooks },
  copilot: { server: schemas.copilotServers, hooks: schemas.copilotHooks },
  opencode: { server: schemas.opencodeServers },
  zed: { server: schemas.zedServers },
}

const setup = (env: Record<string, string> = {}): ServerSetup => ({
  server: { command: '/usr/bin/sealpost', args: ['mcp', '--profile', 'agent'], env },
  status: { command: '/usr/bin/sealpost', args: ['--profile', 'agent', 'status', '--hook'], env },
})

const linux: ClientHost = { platform: 'linux', home: '/home/al', project: '/home/al/app', environment: {} }
const mac: ClientHost = { ...linux, platform: 'darwin', home: '/Users/al', project: '/Users/al/app' }
const windows: ClientHost = {
  platform: 'win32',
  home: 'C:\\Users\\al',
  project: 'D:\\app',
  environment: { APPDATA: 'C:\\Users\\al\\AppData\\Roaming' },
}

const filesOf = (name: ClientName, host: ClientHost, scope: Scope, env = {}) =>
  clients[name].files(host, scope, setup(env))

const options = { file: 'config', isForced: false }

describe.each(clientNames)('%s', (name) => {
  const scopes: readonly Scope[] = clients[name].scopes
  const everywhere = [linux, mac, windows].flatMap((host) => scopes.map((scope) => ({ host, scope })))

  test.each([{}, { SEALPOST_HOME: '/srv/seal post' }])(
    'what goes into the files has the documented shape (%j)',
    (env) => {
      for (const { host, scope } of everywhere)
        for (const { purpose, content } of filesOf(name, host, scope, env)) {
          const text = putContent('', content, options)
          if (purpose === 'skill') expect(text).toContain('# Sealpost messages')
          else {
            const value: unknown = content.kind === 'toml' ? parseToml(text) : JSON.parse(text)
            SCHEMAS[name][purpose]!.parse(value)
          }
        }
    },
  )

  test('every file is below the home folder or the project', () => {
    for (const { host, scope } of everywhere)
      for (const { path } of filesOf(name, host, scope))
        expect(path.startsWith(scope === 'user' ? host.home : host.project)).toBe(true)
  })
})

test('a skill has a name and a description', () => {
  const skills = clientNames.flatMap((name) =>
    filesOf(name, linux, 'user').filter(({ path }) => path.endsWith('SKILL.md')),
  )
  expect(skills.length).toBeGreaterThan(5)
  for (const { content } of skills) {
    const [, head = ''] = /^---\n([\s\S]*?)\n---\n/.exec(putContent('', content, options)) ?? []
    const fields = head.split('\n').map((line) => line.split(/: (.*)/s, 2))
    schemas.skillHead.parse(Object.fromEntries(fields))
  }
})

test('the files of a client are found on each platform', () => {
  const serverPath = (name: ClientName, host: ClientHost, scope: Scope = 'user') => filesOf(name, host, scope)[0]!.path
  expect(clientNames.map((name) => serverPath(name, linux))).toEqual([
    '/home/al/.claude.json',
    '/home/al/.config/Claude/claude_desktop_config.json',
    '/home/al/.codex/config.toml',
    '/home/al/.cursor/mcp.json',
    '/home/al/.config/Code/User/mcp.json',
    '/home/al/.codeium/windsurf/mcp_config.json',
    '/home/al/.gemini/settings.json',
    '/home/al/.copilot/mcp-config.json',
    '/home/al/.config/opencode/opencode.json',
    '/home/al/.config/zed/settings.json',
  ])
  expect(serverPath('claude-desktop', mac)).toBe(
    '/Users/al/Library/Application Support/Claude/claude_desktop_config.json',
  )
  expect(serverPath('vscode', mac)).toBe('/Users/al/Library/Application Support/Code/User/mcp.json')
  expect(serverPath('zed', mac)).toBe('/Users/al/.config/zed/settings.json')
  expect(serverPath('claude', windows)).toBe('C:\\Users\\al\\.claude.json')
  expect(serverPath('claude-desktop', windows)).toBe(
    'C:\\Users\\al\\AppData\\Roaming\\Claude\\claude_desktop_config.json',
  )
  expect(serverPath('vscode', windows)).toBe('C:\\Users\\al\\AppData\\Roaming\\Code\\User\\mcp.json')
  expect(serverPath('zed', windows)).toBe('C:\\Users\\al\\AppData\\Roaming\\Zed\\settings.json')
  expect(serverPath('cursor', windows, 'project')).toBe('D:\\app\\.cursor\\mcp.json')
  expect(serverPath('claude', linux, 'project')).toBe('/home/al/app/.mcp.json')
  expect(serverPath('claude', { ...linux, environment: { CLAUDE_CONFIG_DIR: '/c' } })).toBe('/c/.claude.json')
  expect(serverPath('codex', { ...linux, environment: { CODEX_HOME: '/c' } })).toBe('/c/config.toml')
  expect(serverPath('gemini', { ...linux, environment: { GEMINI_CLI_HOME: '/c' } })).toBe('/c/.gemini/settings.json')
  expect(serverPath('zed', { ...linux, environment: { XDG_CONFIG_HOME: '/c' } })).toBe('/c/zed/settings.json')
})

describe('the command that the client starts', () => {
  const program = (rest: Partial<RunningProgram>, files: Readonly<Record<string, string>> = {}): RunningProgram => ({
    platform: 'linux',
    execPath: '/opt/sealpost',
    main: null,
    searchPath: '/usr/local/bin:/usr/bin',
    version: '1.2.3',
    resolve: (path) => files[path] ?? (path === rest.execPath || path === '/opt/sealpost' ? path : null),
    ...rest,
  })

  test('is the compiled program', () => {
    expect(launchCommand(program({}), 'absolute')).toEqual({ command: '/opt/sealpost', args: [] })
  })

  test('is a link on the PATH, which survives an update', () => {
    const execPath = '/opt/homebrew/Cellar/sealpost/1.2.3/bin/sealpost'
    const brew = program({ execPath, searchPath: '/opt/homebrew/bin' }, { '/opt/homebrew/bin/sealpost': execPath })
    expect(launchCommand(brew, 'absolute').command).toBe('/opt/homebrew/bin/sealpost')
  })

  test('is the program in the npm package, or the launcher if a version is in the path of the program', () => {
    const launcher = { '/usr/local/bin/sealpost': '/usr/local/lib/node_modules/sealpost/sealpost.cjs' }
    const execPath = '/usr/local/lib/node_modules/@sealpost/cli-linux-x64/sealpost'
    expect(launchCommand(program({ execPath }, launcher), 'absolute').command).toBe(execPath)
    const pnpm = '/store/@sealpost+cli-linux-x64@1.2.3/sealpost'
    expect(launchCommand(program({ execPath: pnpm }, launcher), 'absolute').command).toBe('/usr/local/bin/sealpost')
  })

  test('is npx if npx runs the program, because npx clears its cache', () => {
    const execPath = '/home/al/.npm/_npx/0a/node_modules/@sealpost/cli-linux-x64/sealpost'
    const npx = program({ execPath }, { '/usr/bin/npx': '/usr/lib/npx.js' })
    expect(launchCommand(npx, 'absolute')).toEqual({ command: '/usr/bin/npx', args: ['--yes', 'sealpost'] })
    expect(launchCommand(npx, 'portable')).toEqual({ command: 'npx', args: ['--yes', 'sealpost'] })
  })

  test('is bun with the source file for a clone', () => {
    const clone = program(
      { execPath: '/b/bun', main: '/src/main.ts' },
      { '/usr/bin/bun': '/b/bun', '/b/bun': '/b/bun' },
    )
    expect(launchCommand(clone, 'absolute')).toEqual({ command: '/usr/bin/bun', args: ['/src/main.ts'] })
  })

  test('has no path in the files of a project, if the program is on the PATH', () => {
    const files = { '/usr/bin/sealpost': '/opt/sealpost' }
    expect(launchCommand(program({}, files), 'portable')).toEqual({ command: 'sealpost', args: [] })
    expect(launchCommand(program({}), 'portable')).toEqual({ command: '/opt/sealpost', args: [] })
  })

  test('starts a script of Windows through cmd', () => {
    const execPath = 'C:\\Users\\al\\AppData\\npm-cache\\_npx\\0a\\sealpost.exe'
    const npx = program(
      { platform: 'win32', execPath, searchPath: 'C:\\node;C:\\bin' },
      { 'C:\\node\\npx.cmd': 'C:\\node\\npx.cmd' },
    )
    expect(launchCommand(npx, 'absolute')).toEqual({
      command: 'cmd',
      args: ['/c', 'C:\\node\\npx.cmd', '--yes', 'sealpost'],
    })
  })
})

test('the line of a hook is quoted for the shell', () => {
  const line = { command: "/opt/o'b/seal post", args: ['status', 'idle'], env: { SEALPOST_HOME: '/srv/a b' } }
  expect(shellLine(line, 'linux')).toBe("SEALPOST_HOME='/srv/a b' '/opt/o'\\''b/seal post' status idle")
  expect(shellLine({ ...line, command: 'C:\\Program Files\\s.exe' }, 'win32')).toBe(
    '"C:/Program Files/s.exe" status idle',
  )
})
