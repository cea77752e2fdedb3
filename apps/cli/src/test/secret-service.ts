/** Runs the keychain of Linux for a test: a D-Bus session with GNOME Keyring, whose folders end with the test. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const PROGRAMS = ['dbus-daemon', 'dbus-send', 'gnome-keyring-daemon']
const missing = PROGRAMS.filter((program) => Bun.which(program) === null)

/** Why the test can't run; null if it can. */
export const missingKeychain: string | null =
  missing.length === 0 && process.platform === 'linux' ? null : `it needs Linux with ${PROGRAMS.join(', ')}`

export class SecretService implements AsyncDisposable {
  readonly #folder: string
  readonly #processes: ChildProcess[] = []
  /** The variables with which a command finds the keychain. */
  environment: Readonly<Record<string, string>> = {}

  private constructor(folder: string) {
    this.#folder = folder
  }

  static async start(): Promise<SecretService> {
    const service = new SecretService(await mkdtemp(join(tmpdir(), 'sealpost-keychain-')))
    try {
      await service.#start()
      return service
    } catch (error) {
      await service[Symbol.asyncDispose]()
      throw error
    }
  }

  async #start(): Promise<void> {
    const config = join(this.#folder, 'bus.conf')
    await writeFile(config, BUS)
    const bus = this.#spawn('dbus-daemon', ['--nofork', '--print-address', `--config-file=${config}`])
    const [printed] = (await once(bus.stdout!, 'data')) as [Buffer]
    this.environment = { DBUS_SESSION_BUS_ADDRESS: String(printed).trim() }
    const keyring = this.#spawn('gnome-keyring-daemon', ['--foreground', '--unlock', '--components=secrets'])
    keyring.stdin!.end('password of the account')
    while (!(await this.#isServed())) if (keyring.exitCode !== null) throw new Error('GNOME Keyring did not start')
  }

  #spawn(program: string, words: readonly string[]): ChildProcess {
    const child = spawn(program, words, { stdio: ['pipe', 'pipe', 'ignore'], env: this.#childEnvironment() })
    this.#processes.push(child)
    return child
  }

  #childEnvironment(): Record<string, string> {
    return {
      PATH: '/usr/local/bin:/usr/bin:/bin',
      HOME: this.#folder,
      XDG_RUNTIME_DIR: this.#folder,
      ...this.environment,
    }
  }

  /** Whether the keyring has its name on the bus. */
  async #isServed(): Promise<boolean> {
    const question = ['org.freedesktop.DBus.GetNameOwner', 'string:org.freedesktop.secrets']
    const words = ['--session', '--print-reply', '--dest=org.freedesktop.DBus', '/org/freedesktop/DBus', ...question]
    const asked = spawn('dbus-send', words, { stdio: 'ignore', env: this.#childEnvironment() })
    const [code] = await once(asked, 'exit')
    return code === 0
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const child of this.#processes.reverse()) {
      if (child.exitCode !== null || child.signalCode !== null) continue
      const ended = once(child, 'exit')
      child.kill()
      await ended
    }
    await rm(this.#folder, { recursive: true, force: true })
  }
}

/** A session bus that starts no services by itself, because another keyring would ask at a screen for its password. */
const BUS = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:tmpdir=/tmp</listen>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
`
