/**
 * Prepares the k6 scripts: creates a mesh with peers, each with an HTTP token and one sealed envelope.
 *
 *   DATABASE_URL=… bun docs/k6/prepare.ts ws://127.0.0.1:7450 10 peers.json
 *
 * The file contains secret keys of the test's peers, and tokens that expire after an hour.
 */
import { chmod } from 'node:fs/promises'
import { HttpSender } from '@sealpost/harness/members/http-peers'
import { generateMesh } from '@sealpost/harness/members/mesh'
import { LoadDatabase } from '@sealpost/loadtest/environment/database'
import type { PeerKey } from '@sealpost/std'

/** The contents of the script's file. */
export interface Prepared {
  readonly authority: string
  readonly brokerKey: string
  readonly meshId: string
  readonly peers: readonly PreparedPeer[]
}

export interface PreparedPeer {
  readonly peerKey: string
  /** The seed of the peer's ed25519 key, as hex. */
  readonly seed: string
  readonly token: string
  readonly recipient: string
  /** Sealed for the recipient, as base64url. */
  readonly envelope: string
}

const BODY_BYTES = 200

async function prepare(brokerUrl: string, count: number, databaseUrl: string): Promise<Prepared> {
  const { host } = new URL(brokerUrl)
  const version = await (await fetch(`${brokerUrl.replace(/^ws/, 'http')}/version`)).json()
  const { brokerKey } = version as { readonly brokerKey: PeerKey }
  const mesh = await generateMesh(count)
  const database = await LoadDatabase.open(databaseUrl)
  await database.seed(mesh).finally(() => database.close())
  const { meshId, peerKeys, secrets, bindings } = mesh
  const peers: PreparedPeer[] = []
  for (const [i, peerKey] of peerKeys.entries()) {
    const to = bindings[(i + 1) % count]!
    const sender = await HttpSender.enter({ url: brokerUrl, brokerKey, meshId }, secrets[i]!)
    const { envelope, recipient } = sender.seal(to, new Uint8Array(BODY_BYTES))
    peers.push({ peerKey, seed: secrets[i]!.signing, token: sender.token, recipient, envelope })
  }
  return { authority: host, brokerKey, meshId, peers }
}

const [brokerUrl, count, file] = process.argv.slice(2)
const { DATABASE_URL } = process.env
if (!brokerUrl || !count || !file || !DATABASE_URL) {
  process.stderr.write('Usage: DATABASE_URL=… bun docs/k6/prepare.ts ws://HOST:PORT PEERS FILE\n')
  process.exit(2)
}
await Bun.write(file, JSON.stringify(await prepare(brokerUrl, Number(count), DATABASE_URL)))
await chmod(file, 0o600)
