/** Starts a Postgres server with TLS for tests, with certificates from a new authority. */
import { execFileSync } from 'node:child_process'
import { chmod, chown, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openDatabase } from '@sealpost/pg'
import { type EmbeddedPostgres, startEmbedded } from '../embedded.ts'
import { chooseAccount } from '../programs.ts'

const PASSWORD = 'pa55word'

/**
 * The users' rules in `pg_hba.conf`: `crypted` requires TLS, `open` forbids it, `carded` needs a client certificate,
 * `free` allows both.
 */
export type TlsUser = 'crypted' | 'open' | 'carded' | 'free'

export class TlsServer {
  readonly postgres: EmbeddedPostgres
  readonly #folder: string

  private constructor(postgres: EmbeddedPostgres, folder: string) {
    this.postgres = postgres
    this.#folder = folder
  }

  /** The certificate is for `localhost`, not for an address. */
  static async start(): Promise<TlsServer> {
    const folder = await mkdtemp(join(tmpdir(), 'sealpost-tls-'))
    await chmod(folder, 0o755)
    authority(folder, 'ca')
    authority(folder, 'other')
    await certificate(folder, 'server', { ca: 'ca', name: 'localhost' })
    await certificate(folder, 'carded', { ca: 'ca', name: 'carded' })
    await certificate(folder, 'other-user', { ca: 'ca', name: 'other-user' })
    await certificate(folder, 'stranger', { ca: 'other', name: 'carded' })
    await writeFile(join(folder, 'hba.conf'), HBA, { mode: 0o644 })
    const { owner } = await chooseAccount()
    if (owner) await chown(join(folder, 'server.key'), owner.uid, owner.gid)
    const file = (name: string) => join(folder, name)
    const settings = {
      ssl_cert_file: file('server.crt'),
      ssl_key_file: file('server.key'),
      ssl_ca_file: file('ca.crt'),
    }
    const postgres = await startEmbedded({ settings: { ssl: 'on', hba_file: file('hba.conf'), ...settings } })
    await makeUsers(postgres.url)
    return new TlsServer(postgres, folder)
  }

  /** Returns the path of `ca.crt`, `other.crt`, or a `.crt` or `.key` of `carded`, `other-user` or `stranger`. */
  file(name: string): string {
    return join(this.#folder, name)
  }

  url(user: TlsUser, host: 'localhost' | '127.0.0.1', parameters: Readonly<Record<string, string>> = {}): string {
    return `postgres://${user}:${PASSWORD}@${host}:${this.postgres.port}/postgres?${new URLSearchParams(parameters)}`
  }

  async stop(): Promise<void> {
    await this.postgres.stop()
    await rm(this.#folder, { recursive: true, force: true })
  }
}

const HBA = `
hostssl all crypted 127.0.0.1/32 scram-sha-256
hostnossl all open 127.0.0.1/32 scram-sha-256
hostssl all carded 127.0.0.1/32 scram-sha-256 clientcert=verify-full
host all free 127.0.0.1/32 scram-sha-256
host all sealpost 127.0.0.1/32 scram-sha-256
`

async function makeUsers(url: string): Promise<void> {
  const db = await openDatabase(url, { connections: 1 })
  const users = ['crypted', 'open', 'carded', 'free'].map(
    (user) => `create role ${user} login superuser password '${PASSWORD}'`,
  )
  await db.run((sql) => sql.unsafe(users.join(';')).simple())
  await db.close()
}

function authority(folder: string, name: string): void {
  const args = ['-x509', '-subj', `/CN=${name}`, '-days', '2', '-keyout', `${name}.key`, '-out', `${name}.crt`]
  openssl(folder, 'req', ...NEW_KEY, ...args)
}

async function certificate(folder: string, file: string, { ca, name }: { ca: string; name: string }): Promise<void> {
  openssl(folder, 'req', ...NEW_KEY, '-subj', `/CN=${name}`, '-keyout', `${file}.key`, '-out', `${file}.csr`)
  await writeFile(join(folder, `${file}.ext`), `subjectAltName = DNS:${name}`)
  const signed = ['-CA', `${ca}.crt`, '-CAkey', `${ca}.key`, '-CAcreateserial', '-days', '2', '-extfile', `${file}.ext`]
  openssl(folder, 'x509', '-req', '-in', `${file}.csr`, '-out', `${file}.crt`, ...signed)
  await chmod(join(folder, `${file}.key`), 0o600)
}

const NEW_KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']

function openssl(folder: string, ...args: readonly string[]): void {
  execFileSync('openssl', args, { cwd: folder, stdio: 'pipe' })
}
