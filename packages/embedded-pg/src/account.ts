/**
 * The account of the embedded server, and its end when the starting process is killed. PostgreSQL refuses to run as
 * root, so root uses an existing unprivileged account; no account is ever created.
 *
 * With `setpriv` (util-linux) the kernel sends the server SIGINT, a fast shutdown, when the *thread* that started it
 * ends. Without it (macOS) only `stop` ends the server.
 */
import { spawn } from 'node:child_process'
import { readFile, stat } from 'node:fs/promises'
import { OperatingError } from '@sealpost/std'

export interface Account {
  name: string
  /** Absent when programs run under our own account. */
  owner?: { uid: number; gid: number }
  /** Precedes every command. */
  prefix: string[]
  /** Precedes a command that shall end with this process. */
  boundPrefix: string[]
  /** Whether `boundPrefix` works here. */
  diesWithParent: boolean
}

/** @param ownedFolder - an existing cluster, which only its owner may run */
export async function chooseAccount(ownedFolder?: string): Promise<Account> {
  const pdeathsig = ['--pdeathsig', 'INT']
  if (process.getuid?.() !== 0) {
    const plain = { name: 'this account', prefix: [], boundPrefix: [] as string[], diesWithParent: false }
    const prefix = ['setpriv', ...pdeathsig]
    const probe = await runProgram(plain, [...prefix, 'true'])
    return probe.code === 0 ? { ...plain, boundPrefix: prefix, diesWithParent: true } : plain
  }
  const { name, uid, gid } = (await ownerOf(ownedFolder)) ?? (await unprivilegedAccount())
  const prefix = ['setpriv', '--reuid', `${uid}`, '--regid', `${gid}`, '--clear-groups', '--no-new-privs']
  const account = { name, owner: { uid, gid }, prefix, boundPrefix: [...prefix, ...pdeathsig], diesWithParent: true }
  const probe = await runProgram({ ...account, prefix: account.boundPrefix }, ['true'])
  if (probe.code === 0) return account
  const sentence = `PostgreSQL does not run as root, and setpriv (util-linux) could not start it as "${name}"`
  throw new OperatingError('embedded_needs_account', `${sentence}; run as an ordinary user, or set DATABASE_URL`)
}

export interface ProgramResult {
  code: number
  output: string
}

/** Runs a short program. Returns stdout and stderr as one string; code 127 if the program can't be started. */
export function runProgram(
  account: Pick<Account, 'prefix'>,
  command: string[],
  { environment = {}, descriptor }: { environment?: Record<string, string>; descriptor?: number | undefined } = {},
): Promise<ProgramResult> {
  const [program, ...args] = [...account.prefix, ...command]
  return new Promise((resolve) => {
    const child = spawn(program as string, args, {
      stdio: ['ignore', 'pipe', 'pipe', ...(descriptor === undefined ? [] : [descriptor])],
      env: { ...programEnvironment, ...environment },
      cwd: '/',
    })
    let output = ''
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', (bytes) => (output += String(bytes)))
    child.on('error', (error) => resolve({ code: 127, output: `${output}${error.message}` }))
    child.on('close', (code) => resolve({ code: code ?? 128, output }))
  })
}

/** Inherits nothing: our environment may contain passwords, and a locale that translates messages. */
export const programEnvironment = { PATH: '/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin', LC_ALL: 'C', TZ: 'UTC' }

async function ownerOf(folder: string | undefined): Promise<{ name: string; uid: number; gid: number } | undefined> {
  const facts = folder ? await stat(folder).catch(() => undefined) : undefined
  return facts && facts.uid !== 0 ? { name: `uid ${facts.uid}`, uid: facts.uid, gid: facts.gid } : undefined
}

/** initdb needs an account with a passwd entry; every Linux has one of these. */
async function unprivilegedAccount(): Promise<{ name: string; uid: number; gid: number }> {
  const entries = (await readFile('/etc/passwd', 'utf8').catch(() => '')).split('\n').map((line) => line.split(':'))
  for (const wanted of ['nobody', 'daemon']) {
    const [name, , uid, gid] = entries.find(([entry]) => entry === wanted) ?? []
    if (name && Number(uid) > 0) return { name, uid: Number(uid), gid: Number(gid) }
  }
  const sentence = 'PostgreSQL does not run as root, and there is no account "nobody"; run as an ordinary user'
  throw new OperatingError('embedded_needs_account', sentence)
}
