/** For tests: a client that names a file in whatever it sends, also to a pool, which `PoolSendOptions` leaves out. */
import { ready } from '@sealpost/identity'
import type { ConnectOptions } from './connect-options.ts'
import { Peer } from './peer.ts'
import type { CryptoPort } from './ports.ts'
import { sodiumCrypto } from './sodium-crypto.ts'

export async function connectAttaching(options: ConnectOptions, attachment: string): Promise<Peer> {
  await ready()
  const crypto = sodiumCrypto(options.identity, options.meshId)
  const seal: CryptoPort['seal'] = (draft) => crypto.seal({ ...draft, note: { ...draft.note, attachment } })
  const peer = new Peer(options, Object.assign(Object.create(crypto), { seal }))
  await peer.start()
  return peer
}
