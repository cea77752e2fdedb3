/**
 * Runs a pool member for tests, whose task is read from stdin. Prints the messages that it receives, and settles none.
 */

import { connect, type MeshId, type PeerKey, type PoolId } from '@sealpost/sdk'
import { poolsOf } from '@sealpost/sdk/pools'

interface MemberTask {
  readonly url: string
  readonly brokerKey: PeerKey
  readonly meshId: MeshId
  readonly poolId: PoolId
  readonly credit: number
  readonly keys: { readonly sign: readonly [string, string]; readonly box: readonly [string, string, number] }
}

if (import.meta.main) {
  const { url, brokerKey, meshId, poolId, credit, keys } = (await Bun.stdin.json()) as MemberTask
  const bytes = (hex: string) => Uint8Array.fromHex(hex)
  const [publicKey, secretKey] = keys.sign
  const [boxPublic, boxSecret, epoch] = keys.box
  const identity = {
    signing: { publicKey: publicKey as PeerKey, secretKey: bytes(secretKey) },
    box: { publicKey: bytes(boxPublic), secretKey: bytes(boxSecret), epoch },
  }
  const peer = await connect({ url, brokerKey, meshId, identity })
  peer.onMessage((message) => {
    process.stdout.write(`took ${message.text()}\n`)
    return new Promise(() => undefined)
  })
  const pool = await poolsOf(peer).find(poolId)
  await pool.join({ credit })
  process.stdout.write('joined\n')
}
