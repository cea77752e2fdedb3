/**
 * Under which account the embedded server runs, and what ends it when its starter is killed. PostgreSQL refuses to run
 * as root, so root hands it to an unprivileged account that exists already; no account is ever added to a machine.
 *
 * Where `setpriv` (util-linux) is at hand, the kernel sends the server SIGINT, a fast shutdown, when the *thread* that
 * started it ends, so nothing outlives a killed starter. Elsewhere (macOS) only an orderly `stop` ends the server.
 */
import { spawn } from 'node:child_process'
import { readFile, stat } from 'node:fs/promises'
import { OperatingError } from '@sealpost/std'

export interface Account {
  name: string
  /** Absent when programs run as whoever we are. */
  owner?: { uid: number; gid: number }
  /** Words before every command. */
  prefix: string[]
  /** Words before a command that is to end with us. */
  leashedPrefix: string[]
  isLeashed: boolean
}

/** @param ownedFolder - an existing cluster: its owner is the one who must run it */
export async function chooseAccount(ownedFolder?: string): Promise<Account> {
  const leash = ['--pdeathsig', 'INT']
  if (process.getuid?.() !== 0) {
    const plain = { name: 'this account', prefix: [], leashedPrefix: [] as string[], isLeashed: false }
    const prefix = ['setpriv', ...leash]
    const probe = await runProgram(plain, [...prefix, 'true'])
    return probe.code === 0 ? { ...plain, leashedPrefix: prefix, isLeashed: true } : plain
  }
  const { name, uid, gid } = (await ownerOf(ownedFolder)) ?? (await unprivilegedAccount())
  const words = ['setpriv', '--reuid', `${uid}`, '--regid', `${gid}`, '--clear-groups', '--no-new-privs']
  const account = { name, owner: { uid, gid }, prefix: words, leashedPrefix: [...words, ...leash], isLeashed: true }
  const probe = await runProgram({ ...account, prefix: account.leashedPrefix }, ['true'])
  if (probe.code === 0) return account
  const sentence = `PostgreSQL does not run as root, and setpriv (util-linux) could not hand it to the account "${name}"`
  throw new OperatingError('embedded_needs_account', `${sentence}; run as an ordinary user, or set DATABASE_URL`)
}

export interface ProgramAnswer {
  code: number
  output: string
}

/** Runs a short program to its end, with both its outputs in one string; a program that can't be started is code 127. */
export function runProgram(
  account: Pick<Account, 'prefix'>,
  command: string[],
  { environment = {}, descriptor }: { environment?: Record<string, string>; descriptor?: number | undefined } = {},
): Promise<ProgramAnswer> {
  const [program, ...words] = [...account.prefix, ...command]
  return new Promise((resolve) => {
    const child = spawn(program as string, words, {
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

/** Nothing of ours is handed on: our environment may hold passwords, and its locale would translate the messages. */
export const programEnvironment = { PATH: '/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin', LC_ALL: 'C', TZ: 'UTC' }

async function ownerOf(folder: string | undefined): Promise<{ name: string; uid: number; gid: number } | undefined> {
  const facts = folder ? await stat(folder).catch(() => undefined) : undefined
  return facts && facts.uid !== 0 ? { name: `uid ${facts.uid}`, uid: facts.uid, gid: facts.gid } : undefined
}

/** initdb wants an account with a passwd entry; every Linux has one of these. */
async function unprivilegedAccount(): Promise<{ name: string; uid: number; gid: number }> {
  const entries = (await readFile('/etc/passwd', 'utf8').catch(() => '')).split('\n').map((line) => line.split(':'))
  for (const wanted of ['nobody', 'daemon']) {
    const [name, , uid, gid] = entries.find(([entry]) => entry === wanted) ?? []
    if (name && Number(uid) > 0) return { name, uid: Number(uid), gid: Number(gid) }
  }
  const sentence =
    'PostgreSQL does not run as root, and there is no account "nobody" to hand it to; run as an ordinary user'
  throw new OperatingError('embedded_needs_account', sentence)
}
