/** Writes the configuration of an MCP client, and undoes that. */
import { homedir } from 'node:os'
import { join, resolve } from 'node:path'
import { OperatingError } from '@sealpost/std'
import { FILE_HEADERS_ONLY, formatPatch, structuredPatch } from 'diff'
import manifest from '../../../package.json'
import { escapeText } from '../../output.ts'
import { typedYes } from '../../profile/passphrase.ts'
import type { GlobalOptions, Shell } from '../../shell.ts'
import {
  type ClientFile,
  type ClientHost,
  type ClientName,
  clients,
  type McpClient,
  type Scope,
  type ServerSetup,
} from './clients.ts'
import type { FileContent } from './config-text.ts'
import {
  applyChange,
  backupPath,
  type FileChange,
  findInstalls,
  type InstallRecord,
  isChange,
  isLeft,
  planInstall,
  planUninstall,
  rollBack,
  saveInstall,
  tidyAfterUndo,
} from './installed-files.ts'
import { launchCommand, onSearchPath, runningProgram } from './launch-command.ts'

/** The options of `sealpost mcp` that the client's configuration passes on. */
interface ServedOptions {
  readonly to?: readonly string[]
  readonly send?: boolean
  readonly files?: string
  readonly maxAge?: number
  readonly as?: string
}

export interface ApplyOptions {
  readonly project?: boolean
  readonly yes?: boolean
  readonly dryRun?: boolean
}

export interface InstallOptions extends ServedOptions, ApplyOptions, GlobalOptions {
  readonly hooks: boolean
  readonly skill: boolean
  readonly force?: boolean
}

export async function install(shell: Shell, options: InstallOptions, name: ClientName): Promise<void> {
  const client: McpClient = clients[name]
  const scope = scopeOf(client, options)
  const host = hostOf(shell)
  const key = { client: name, project: scope === 'project' ? host.project : null }
  const found = await findInstalls(shell.settings.home, key)
  const files = chosenFiles(client.files(host, scope, setupOf(shell, host, { options, scope })), options)
  const changes = await planInstall({ files, found, isForced: options.force === true })
  await warnBefore(shell, client, host)
  const isApplied = await confirmAndApply(shell, changes, {
    ...options,
    question: `Change the configuration of ${client.title}?`,
    record: { ...key, files: changes.flatMap(({ record }) => record ?? []) },
    previous: found.own,
  })
  if (isApplied) shell.output.info(client.next)
}

export async function uninstall(shell: Shell, options: ApplyOptions, name: ClientName): Promise<void> {
  const client: McpClient = clients[name]
  const project = scopeOf(client, options) === 'project' ? hostOf(shell).project : null
  const { own, shared } = await findInstalls(shell.settings.home, { client: name, project })
  if (!own)
    throw new OperatingError(
      'mcp_not_installed',
      `\`sealpost mcp install ${name}\` has installed nothing ${project === null ? 'for your account' : `in ${project}`}.`,
    )
  const undoings = await planUninstall(own, shared)
  for (const { change } of undoings.filter(isLeft)) shell.output.warn(`${change.file.path} was changed, so it stays.`)
  const changes = undoings.map(({ change }) => change)
  await confirmAndApply(shell, changes, {
    ...options,
    question: `Remove Sealpost from the configuration of ${client.title}?`,
    record: { ...own, files: [] },
    previous: own,
  })
}

/** @throws OperatingError `scope_unsupported` */
function scopeOf({ title, scopes }: McpClient, { project = false }: ApplyOptions): Scope {
  const scope = project ? 'project' : 'user'
  if (scopes.includes(scope)) return scope
  throw new OperatingError('scope_unsupported', `${title} has no configuration for projects. Omit --project.`)
}

function hostOf({ settings: { environment } }: Shell): ClientHost {
  const home = process.platform === 'win32' ? environment.USERPROFILE : environment.HOME
  return { platform: process.platform, home: home || homedir(), project: process.cwd(), environment }
}

interface SetupChoice {
  readonly options: InstallOptions
  readonly scope: Scope
}

function setupOf({ settings, profile }: Shell, host: ClientHost, { options, scope }: SetupChoice): ServerSetup {
  const { environment, home } = settings
  const program = runningProgram(manifest.version, environment)
  const launch = launchCommand(program, scope === 'project' ? 'portable' : 'absolute')
  const own = ['--profile', profile.name]
  const isUsualHome = resolve(home) === join(host.home, '.config', 'sealpost')
  const homeVariable = isUsualHome ? {} : { SEALPOST_HOME: resolve(home) }
  const certificates = environment.NODE_EXTRA_CA_CERTS
  return {
    server: {
      command: launch.command,
      args: [...launch.args, 'mcp', ...own, ...servedArgs(options)],
      env: { ...homeVariable, ...(certificates ? { NODE_EXTRA_CA_CERTS: resolve(certificates) } : {}) },
    },
    status: { command: launch.command, args: [...launch.args, ...own, 'status', '--hook'], env: homeVariable },
  }
}

function servedArgs({ as, send, files, maxAge, to, passphraseFile }: InstallOptions): string[] {
  return [
    ...(as === undefined ? [] : ['--as', as]),
    ...(send === false ? ['--no-send'] : []),
    ...(files === undefined ? [] : ['--files', resolve(files)]),
    ...(maxAge === undefined ? [] : ['--max-age', `${maxAge}s`]),
    ...(passphraseFile === undefined ? [] : ['--passphrase-file', resolve(passphraseFile)]),
    ...(to === undefined ? [] : ['--to', ...to]), // takes all words that follow
  ]
}

/** Returns the wanted files. A file with two purposes has both contents. */
function chosenFiles(
  files: readonly ClientFile[],
  { hooks, skill }: InstallOptions,
): Pick<ClientFile, 'path' | 'content'>[] {
  const wanted = files.filter(({ purpose }) => (purpose === 'hooks' ? hooks : purpose === 'skill' ? skill : true))
  const byPath = Map.groupBy(wanted, ({ path }) => path)
  return [...byPath].map(([path, parts]) => ({ path, content: parts.map(({ content }) => content).reduce(merged) }))
}

function merged(a: FileContent, b: FileContent): FileContent {
  if (a.kind !== 'json' || b.kind !== 'json') throw new Error('only JSON files serve two purposes')
  return { kind: 'json', entries: [...a.entries, ...b.entries] }
}

async function warnBefore({ output, profile }: Shell, client: McpClient, host: ClientHost): Promise<void> {
  if (!isInstalled(client, host))
    output.warn(`${client.title} does not seem to be installed. It reads this configuration once it is.`)
  if (!(await profile.findMembership()))
    output.warn(`The profile ${profile.name} belongs to no mesh yet. Join one with \`sealpost join INVITE\`.`)
}

function isInstalled({ program, signs }: McpClient, host: ClientHost): boolean {
  const running = runningProgram(manifest.version, host.environment)
  return (
    signs(host).some((path) => running.resolve(path) !== null) ||
    (program !== null && onSearchPath(running, program).length > 0)
  )
}

interface Application extends ApplyOptions {
  readonly question: string
  readonly record: InstallRecord
  readonly previous: InstallRecord | undefined
}

/** Returns whether the changes were made. @throws OperatingError `usage`, and the errors of `applyChange` */
async function confirmAndApply(
  shell: Shell,
  changes: readonly FileChange[],
  application: Application,
): Promise<boolean> {
  const { output } = shell
  const { dryRun = false, yes = false, question } = application
  const wanted = changes.filter(isChange)
  if (!output.isJson && wanted.length > 0)
    await output.result({}, () => wanted.map((each) => coloured(shell, each)).join('\n'))
  if (wanted.length > 0 && !dryRun && !yes && !(await confirm(shell, question))) {
    output.info('Nothing was changed.')
    return false
  }
  if (!dryRun) await applyAll(shell, wanted, application)
  const isApplied = wanted.length > 0 && !dryRun
  await report(shell, changes, isApplied)
  return isApplied
}

async function confirm({ signal }: Shell, question: string): Promise<boolean> {
  if (!process.stdin.isTTY || !process.stderr.isTTY)
    throw new OperatingError(
      'usage',
      'There is no terminal to ask. Add --yes to make this change, or --dry-run to see it only.',
    )
  return typedYes(question, signal)
}

/** Makes all changes or none. */
async function applyAll(
  { settings }: Shell,
  changes: readonly FileChange[],
  { record, previous }: Application,
): Promise<void> {
  const done: FileChange[] = []
  // The record is first: a crash leaves a record of too much, which an undo ignores.
  if (record.files.length > 0) await saveInstall(settings.home, record)
  try {
    for (const change of changes) {
      await applyChange(change)
      done.push(change)
    }
  } catch (error) {
    await rollBack(done)
    await saveInstall(settings.home, previous ?? { ...record, files: [] })
    throw error
  }
  const kept = new Set(record.files.map(({ path }) => path))
  for (const old of previous?.files ?? []) if (!kept.has(old.path)) await tidyAfterUndo(old)
  if (record.files.length === 0 && previous) await saveInstall(settings.home, record)
}

async function report({ output }: Shell, changes: readonly FileChange[], isApplied: boolean): Promise<void> {
  if (output.isJson) {
    const files = changes.map((change) => ({
      path: change.file.path,
      change: kindOf(change),
      diff: isChange(change) ? diffOf(change) : '',
      backup: isApplied ? findBackup(change) : null,
    }))
    return output.result({ isApplied, files }, () => '')
  }
  const made = changes.filter(isChange)
  if (made.length === 0) return output.info('The configuration is up to date.')
  if (!isApplied) return
  output.info(made.map((change) => `${kindOf(change)} ${change.file.path}`).join('\n'))
  const backups = made.flatMap((change) => findBackup(change) ?? [])
  if (backups.length > 0) output.info(`backup: ${backups.join(', ')}`)
}

const findBackup = ({ file, backup }: FileChange): string | null =>
  backup === undefined ? null : backupPath(file.path)

function kindOf({ before, after }: FileChange): string {
  if (before === after) return 'unchanged'
  return before === undefined ? 'created' : after === undefined ? 'removed' : 'changed'
}

function diffOf({ file: { path }, before, after }: FileChange): string {
  const names = [before === undefined ? '/dev/null' : path, after === undefined ? '/dev/null' : path] as const
  const patch = structuredPatch(...names, before ?? '', after ?? '', undefined, undefined, { context: 3 })
  return formatPatch(patch, FILE_HEADERS_ONLY)
}

function coloured({ output: { paint } }: Shell, change: FileChange): string {
  const painted = (line: string) => {
    if (/^(?:---|\+\+\+) /.test(line)) return paint.bold(line)
    return line.startsWith('+') ? paint.green(line) : line.startsWith('-') ? paint.red(line) : line
  }
  return diffOf(change)
    .trimEnd()
    .split(/\r?\n/)
    .map((line) => painted(escapeText(line, '')))
    .join('\n')
}
