/** Signs checkpoints of meshes' logs, and reads proofs from the stored nodes (docs/adr/0023). */
import {
  consistencyRanges,
  inclusionRanges,
  type LeafRange,
  nodePosition,
  perfectRanges,
  rangeHash,
  signCheckpoint,
} from '@sealpost/identity/log'
import type { Database } from '@sealpost/pg'
import type { MeshId, Millis, PeerKey } from '@sealpost/std'
import { findLogLeaves, findLogSigners, putLogSigner, readLogHead, readLogNodes } from '@sealpost/store'
import type { BrokerKeys } from '../directory/authenticator.ts'
import type { HttpRefusal } from '../http/tokens.ts'

export interface SignedLog {
  readonly checkpoint: Uint8Array
  /** The shard's certificate; null if the signer is the key that peers have pinned. */
  readonly certificate: Uint8Array | null
}

export interface InclusionProof {
  /** As 64 hex digits. */
  readonly leaf: string
  /** Null if the log of the requested size does not contain the leaf. */
  readonly index: number | null
  readonly path: readonly Uint8Array[]
}

interface Signed {
  readonly size: number
  readonly atMs: Millis
  readonly checkpoint: Uint8Array
}

/** The age at which the same size is signed again, so that a peer sees that the answer is not an old one. */
const SIGN_AGAIN_MS: Millis = 60_000
const SIGNED_MAX = 10_000

export class MeshLogs {
  readonly #db: Database
  readonly #keys: BrokerKeys
  /** The newest checkpoints, the oldest first. */
  readonly #signed = new Map<MeshId, Signed>()

  constructor(db: Database, keys: BrokerKeys) {
    this.#db = db
    this.#keys = keys
  }

  /** Returns the refusals `log_incomplete`, and `log_broken` if stored nodes are missing. */
  async checkpoint(meshId: MeshId): Promise<SignedLog | HttpRefusal> {
    const { size, isComplete } = await readLogHead(this.#db, meshId)
    if (!isComplete) return { code: 'log_incomplete' }
    const certificate = this.#keys.certificate?.bytes ?? null
    const known = this.#signed.get(meshId)
    if (known?.size === size && Date.now() - known.atMs < SIGN_AGAIN_MS)
      return { checkpoint: known.checkpoint, certificate }
    const [rootHash] = (await this.#hashesOf(meshId, [{ start: 0, end: size }])) ?? []
    if (!rootHash) return { code: 'log_broken' }
    const atMs = Date.now()
    const checkpoint = signCheckpoint(this.#keys, { meshId, size, rootHash, atMs })
    if (certificate) await putLogSigner(this.#db, meshId, { signer: this.#keys.publicKey, certificate })
    this.#remember(meshId, { size, atMs, checkpoint })
    return { checkpoint, certificate }
  }

  /** Returns the certificates of other shards that have signed checkpoints of this mesh. */
  certificatesOf(meshId: MeshId, signers: readonly PeerKey[]): Promise<readonly Uint8Array[]> {
    return findLogSigners(this.#db, meshId, signers)
  }

  /** Returns a proof for each leaf, in their order; the refusals `log_size_unknown` and `log_broken`. */
  async inclusion(
    meshId: MeshId,
    { size, leaves }: { size: number; leaves: readonly string[] },
  ): Promise<readonly InclusionProof[] | HttpRefusal> {
    const places = await findLogLeaves(this.#db, meshId, leaves)
    const found = leaves.map((leaf) => {
      const index = places.get(leaf)
      return index === undefined || index >= size
        ? { leaf, index: null, ranges: [] }
        : { leaf, index, ranges: inclusionRanges(index, size) }
    })
    const hashes = await this.#hashesOf(
      meshId,
      found.flatMap(({ ranges }) => ranges),
    )
    if (!hashes) return this.#whyMissing(meshId, size)
    let at = 0
    return found.map(({ leaf, index, ranges }) => {
      at += ranges.length
      return { leaf, index, path: hashes.slice(at - ranges.length, at) }
    })
  }

  async consistency(
    meshId: MeshId,
    { from, to }: { from: number; to: number },
  ): Promise<readonly Uint8Array[] | HttpRefusal> {
    return (await this.#hashesOf(meshId, consistencyRanges(from, to))) ?? this.#whyMissing(meshId, to)
  }

  /** Returns the hashes of the ranges, or null if a node is missing. */
  async #hashesOf(meshId: MeshId, ranges: readonly LeafRange[]): Promise<Uint8Array[] | null> {
    const positions = new Set(ranges.flatMap((range) => perfectRanges(range).map(nodePosition)))
    const nodes = positions.size === 0 ? new Map() : await readLogNodes(this.#db, meshId, [...positions])
    if (nodes.size < positions.size) return null
    const known = new Map<string, Uint8Array>() // the proofs of a request share ranges
    const hashOf = (range: LeafRange): Uint8Array => {
      const key = `${range.start} ${range.end}`
      const hash = known.get(key) ?? rangeHash(range, (position) => nodes.get(position)!)
      known.set(key, hash)
      return hash
    }
    return ranges.map(hashOf)
  }

  async #whyMissing(meshId: MeshId, size: number): Promise<HttpRefusal> {
    const head = await readLogHead(this.#db, meshId)
    return { code: size > head.size ? 'log_size_unknown' : 'log_broken' }
  }

  #remember(meshId: MeshId, signed: Signed): void {
    this.#signed.delete(meshId)
    this.#signed.set(meshId, signed)
    if (this.#signed.size <= SIGNED_MAX) return
    const [oldest] = this.#signed.keys()
    this.#signed.delete(oldest!)
  }
}
