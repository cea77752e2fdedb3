/** Creates an authority and certificates for tests with `openssl`. */
import { rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

export interface CertificateFiles {
  readonly cert: string
  readonly key: string
}

const KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']
const NAMES = 'subjectAltName=DNS:localhost,IP:127.0.0.1'

export class TestAuthority {
  /** The authority's certificate, for `NODE_EXTRA_CA_CERTS`. */
  readonly file: string
  readonly #folder: string
  #made = 0

  private constructor(folder: string) {
    this.#folder = folder
    this.file = join(folder, 'ca.pem')
  }

  static make(folder: string): TestAuthority {
    const authority = new TestAuthority(folder)
    const key = join(folder, 'ca-key.pem')
    openssl('req', '-x509', ...KEY, '-keyout', key, '-out', authority.file, '-days', '2', '-subj', '/CN=test authority')
    return authority
  }

  /** Creates a certificate, by default for `localhost` and 127.0.0.1. With `days` of -1, it has expired. */
  async certify({ names = NAMES, days = 2 }: { names?: string; days?: number } = {}): Promise<CertificateFiles> {
    const path = (name: string) => join(this.#folder, `${this.#made}-${name}`)
    this.#made += 1
    const [key, request, cert, extensions] = [path('key.pem'), path('request.pem'), path('cert.pem'), path('names')]
    await writeFile(extensions, names)
    openssl('req', ...KEY, '-keyout', key, '-out', request, '-subj', `/CN=test ${this.#made}`)
    const by = ['-CA', this.file, '-CAkey', join(this.#folder, 'ca-key.pem'), '-CAcreateserial']
    openssl('x509', '-req', '-in', request, ...by, '-days', String(days), '-extfile', extensions, '-out', cert)
    return { cert, key }
  }
}

export const tlsSettingsOf = ({ cert, key }: CertificateFiles) => ({ TLS_CERT: cert, TLS_KEY: key })

/** Replaces a file atomically with a copy of another. */
export async function replaceFile(path: string, by: string): Promise<void> {
  await writeFile(`${path}.new`, await Bun.file(by).text())
  await rename(`${path}.new`, path)
}

function openssl(...words: string[]): void {
  const { success, stderr } = Bun.spawnSync(['openssl', ...words], { stderr: 'pipe' })
  if (!success) throw new Error(`openssl ${words[0]}: ${stderr}`)
}
