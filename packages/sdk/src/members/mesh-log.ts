/**
 * Checks the transparent log of a mesh (docs/adr/0023): that each checkpoint continues the newest known one, and that
 * statements are in the log. It reads each new entry, and stores the newest checkpoint. A log that contradicts it stays refused until a person
 * accepts it.
 */
import {
  type Checkpoint,
  compareCheckpoints,
  type EntryKind,
  entryLeaf,
  isBrokerKey,
  type LogEntry,
  readCheckpoint,
  rootOfInclusion,
  TreeBuilder,
} from '@sealpost/identity/log'
import { LOOKUP_MAX } from '@sealpost/protocol'
import { fromBase64url, fromHex, type MeshId, type PeerKey, toBase64url, toHex } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import { answerMalformed, bytesOf, type HttpAccess } from '../http/access.ts'
import { chunksOf } from '../outbox/lane.ts'
import type { CheckpointRecord, StoreRecord } from '../stores/records.ts'

/** A checkpoint, as evidence: the signature is valid for the pinned key, or for the key that the certificate names. */
export interface SignedCheckpoint {
  readonly checkpoint: Checkpoint
  /** The certificate of the shard that signed; null if the pinned key signed. */
  readonly certificate: Uint8Array | null
}

/**
 * What contradicts the known log. `log_forked`: the broker signed two logs, neither of which continues the other.
 * `log_rolled_back`: it shows a shorter log than before. `log_withheld`: it showed a log before, and now none that is valid.
 */
export type LogContradiction =
  | {
      readonly type: 'log_forked' | 'log_rolled_back'
      readonly known: SignedCheckpoint
      readonly shown: SignedCheckpoint
    }
  | { readonly type: 'log_withheld'; readonly known: SignedCheckpoint; readonly code: string }

export type LogEvent =
  | LogContradiction
  /** The broker handed out a statement that the log does not contain, although it must. */
  | {
      readonly type: 'statement_not_logged'
      readonly kind: EntryKind
      readonly statement: Uint8Array
      readonly shown: SignedCheckpoint
    }

/** `checkpoint_forged`: no key of the pinned broker signed the checkpoint, or none is known to. */
export type WitnessVerdict = 'consistent' | 'no_log' | 'checkpoint_forged' | LogContradiction['type']

export interface MeshLogParts {
  readonly access: HttpAccess
  readonly meshId: MeshId
  readonly brokerKey: PeerKey
  readonly emit: (event: LogEvent) => void
  /** Takes the new entries of the log before the checkpoint that contains them is stored, because no later process reads them. */
  readonly follow: (entries: readonly LogEntry[]) => void
  readonly keep: (record: CheckpointRecord) => void
}

const HASH_BYTES = 32
/** The number of new entries up to which a peer reads them. Above it, for example in a large mesh that it joins, it reads none. */
const FOLLOWED_MAX = 2_000
/** The refusals of a broker that has no valid log. An earlier version responds `not_found`. */
const NO_LOG: readonly string[] = ['not_found', 'log_incomplete', 'log_size_unknown', 'log_broken']

export class MeshLog {
  /** @internal */
  readonly parts: MeshLogParts
  #known: SignedCheckpoint | null = null
  #accepted = 0
  #contradiction: LogContradiction | null = null
  /** The hashes of entries that are in the log. */
  readonly #logged = new Set<string>()
  /** Entries from before the first checkpoint, which are checked with it. */
  #earlier: LogEntry[] = []
  readonly #reported = new Set<string>()

  /** @internal */
  constructor(parts: MeshLogParts) {
    this.parts = parts
  }

  /**
   * The newest checkpoint that this peer has verified; null if the broker has shown none.
   * @example const bytes = members.log.checkpoint?.bytes
   */
  get checkpoint(): Checkpoint | null {
    return this.#known?.checkpoint ?? null
  }

  /** The newest verified checkpoint with the certificate of its signer. @internal */
  get signed(): SignedCheckpoint | null {
    return this.#known
  }

  /**
   * What contradicts the known log; null if nothing does. Until `accept`, new statements are refused.
   * @example if (members.log.contradiction) console.error(members.log.contradiction.type)
   */
  get contradiction(): LogContradiction | null {
    return this.#contradiction
  }

  /**
   * Requests the newest checkpoint, and verifies that it continues the known one. Returns null if the broker has no log.
   * @throws SealpostError `connection_lost`, and the broker's refusals
   * @example const checkpoint = await members.log.refresh()
   */
  async refresh(): Promise<Checkpoint | null> {
    const shown = await this.shown().catch((error) => this.#withheld(error))
    if (shown) await this.#learn(shown)
    return this.checkpoint
  }

  /**
   * Compares a checkpoint that another peer has seen with the log that the broker shows to this peer. Emits the event of a
   * contradiction. A forged checkpoint is evidence against the other peer only.
   * @throws SealpostError `connection_lost`, and the broker's refusals
   * @example const verdict = await members.log.witness(checkpointOfBen)
   */
  async witness(bytes: Uint8Array): Promise<WitnessVerdict> {
    const checkpoint = readCheckpoint(bytes, this.parts.meshId)
    if (!checkpoint) return 'checkpoint_forged'
    if (this.#isKnown(checkpoint)) return 'consistent'
    const other = await this.#signedBy(checkpoint)
    if (!other) return 'checkpoint_forged'
    if (checkpoint.size > (this.checkpoint?.size ?? 0)) await this.refresh()
    const own = this.#known
    if (!own) return this.#contradiction?.type ?? 'no_log'
    if (checkpoint.size > own.checkpoint.size)
      return this.#contradicts({ type: 'log_rolled_back', known: other, shown: own })
    const path = await this.#consistencyPath(checkpoint, own.checkpoint)
    if (path && compareCheckpoints(checkpoint, own.checkpoint, path) === 'consistent') return 'consistent'
    return this.#contradicts({ type: 'log_forked', known: other, shown: own })
  }

  /**
   * Accepts the log that the broker shows now, instead of the known one, after its operator has explained the difference.
   * @throws SealpostError `connection_lost`, and the broker's refusals, such as `not_found` of an earlier version
   * @example await members.log.accept()
   */
  async accept(): Promise<Checkpoint> {
    const shown = await this.shown()
    this.#accepted += 1
    this.#contradiction = null
    this.#logged.clear()
    this.#reported.clear()
    if (await this.#follow(0, shown)) this.#keep(shown)
    return shown.checkpoint
  }

  /**
   * Returns which of the entries are in the log, in their order: none while something contradicts the known log, and all if
   * the broker never had one. @internal
   */
  async areLogged(entries: readonly LogEntry[]): Promise<readonly boolean[]> {
    const isFirst = this.#known === null
    await this.refresh()
    if (this.#contradiction) return entries.map(() => false)
    if (!this.#known) return entries.map(() => true)
    const earlier = isFirst ? this.#earlier : []
    this.#earlier = []
    await this.#prove([...earlier, ...entries])
    return entries.map((entry) => this.#logged.has(toHex(entryLeaf(entry))))
  }

  /** Restores the newest checkpoint, and the entries from before the first one. @internal */
  restore(records: readonly StoreRecord[]): void {
    const record = records.find(({ kind }) => kind === 'checkpoint') as CheckpointRecord | undefined
    const checkpoint = record && readCheckpoint(record.bytes, this.parts.meshId)
    if (!checkpoint) this.#earlier = records.flatMap(entriesIn)
    else
      this.#known = { checkpoint, certificate: record.certificate === null ? null : fromBase64url(record.certificate) }
    this.#accepted = record?.accepted ?? 0
  }

  /** Verifies a checkpoint that the broker shows against the known one. */
  async #learn(shown: SignedCheckpoint): Promise<void> {
    const known = this.#known
    if (!known) {
      if (!(await this.#follow(0, shown))) return
      this.#keep(shown)
      return this.#endWithheld()
    }
    const [before, now] = [known.checkpoint, shown.checkpoint]
    if (now.size < before.size) return void this.#contradicts({ type: 'log_rolled_back', known, shown })
    const path = await this.#consistencyPath(before, now)
    if (!path || compareCheckpoints(before, now, path) === 'forked')
      return void this.#contradicts({ type: 'log_forked', known, shown })
    const isNewer = now.size > before.size || now.atMs > before.atMs
    if (!(await this.#follow(before.size, shown))) return
    if (isNewer) this.#keep(shown)
    this.#endWithheld()
  }

  /** A broker that shows a valid continuation of the known log withholds it no longer. Nothing ends a fork or a rollback. */
  #endWithheld(): void {
    if (this.#contradiction?.type !== 'log_withheld') return
    this.#contradiction = null
    this.#reported.delete('log_withheld')
  }

  /**
   * Reads and verifies the entries that the log has beyond a size, so that the broker can't hide a statement that others
   * see. Returns false if the broker does not show all of them.
   */
  async #follow(from: number, shown: SignedCheckpoint): Promise<boolean> {
    const { size } = shown.checkpoint
    if (size === from || size - from > FOLLOWED_MAX) return true
    const entries = await readLogEntries(this.parts.access, { from, to: size })
    const leaves = entries.map((entry) => entryLeaf(entry))
    if (leaves.length < size - from || !(await this.#areAt(from, leaves, shown.checkpoint))) {
      this.#contradicts({ type: 'log_withheld', known: this.#known ?? shown, code: 'entries_missing' })
      return false
    }
    for (const leaf of leaves) this.#logged.add(toHex(leaf))
    this.parts.follow(entries)
    return true
  }

  /** Returns whether the leaves are those from this index up to the end of the log. */
  async #areAt(from: number, leaves: readonly Uint8Array[], checkpoint: Checkpoint): Promise<boolean> {
    if (from === 0) {
      const builder = new TreeBuilder()
      for (const leaf of leaves) builder.append(leaf)
      return toHex(builder.rootHash) === toHex(checkpoint.rootHash)
    }
    const places = new Map<string, number>()
    for (const some of chunksOf(leaves.map(toHex), LOOKUP_MAX))
      for (const [leaf, index] of await this.#placesOf(some, checkpoint)) places.set(leaf, index)
    return leaves.every((leaf, at) => places.get(toHex(leaf)) === from + at)
  }

  #contradicts(contradiction: LogContradiction): LogContradiction['type'] {
    this.#contradiction ??= contradiction
    this.#report(contradiction.type, contradiction)
    return contradiction.type
  }

  #withheld(error: unknown): null {
    if (!(error instanceof SealpostError) || !NO_LOG.includes(error.code)) throw error
    if (this.#known) this.#contradicts({ type: 'log_withheld', known: this.#known, code: error.code })
    return null
  }

  #keep(shown: SignedCheckpoint): void {
    this.#known = shown
    const { checkpoint, certificate } = shown
    const fields = { size: checkpoint.size, certificate: certificate && toBase64url(certificate) }
    this.parts.keep({ kind: 'checkpoint', bytes: checkpoint.bytes, ...fields, accepted: this.#accepted })
  }

  #isKnown({ size, rootHash }: Checkpoint): boolean {
    return this.checkpoint?.size === size && toHex(this.checkpoint.rootHash) === toHex(rootHash)
  }

  /**
   * Returns the checkpoint that the broker shows, without comparing it with the known one.
   * @throws SealpostError `answer_malformed` if the pinned broker has not signed it @internal
   */
  async shown(): Promise<SignedCheckpoint> {
    const { meshId, brokerKey } = this.parts
    const answer = await this.#ask('checkpoint', {})
    const checkpoint = readCheckpoint(bytesOf(answer.checkpoint), meshId)
    const certificate = answer.certificate === null ? null : bytesOf(answer.certificate)
    if (!checkpoint || !isBrokerKey(checkpoint, { brokerKey, certificate })) throw answerMalformed()
    return { checkpoint, certificate }
  }

  /** Returns a checkpoint with the certificate of its signer, or null if the pinned key has not certified it. */
  async #signedBy(checkpoint: Checkpoint): Promise<SignedCheckpoint | null> {
    const { brokerKey } = this.parts
    const known = [null, this.#known?.certificate ?? null]
    const isSigner = (certificate: Uint8Array | null) => isBrokerKey(checkpoint, { brokerKey, certificate })
    const found = known.find(isSigner)
    if (found !== undefined) return { checkpoint, certificate: found }
    const answer = await this.#ask('checkpoint', { signers: [checkpoint.signer] }).catch((error) =>
      this.#withheld(error),
    )
    const certificates = Array.isArray(answer?.certificates) ? answer.certificates.map(bytesOf) : []
    const certificate = certificates.find(isSigner)
    return certificate ? { checkpoint, certificate } : null
  }

  /** Returns null if the broker does not have a log of one of the sizes. */
  async #consistencyPath(before: Checkpoint, now: Checkpoint): Promise<readonly Uint8Array[] | null> {
    if (before.size === now.size || before.size === 0) return []
    const answer = await this.#ask('consistency', { from: before.size, to: now.size }).catch((error) => {
      if (error instanceof SealpostError && NO_LOG.includes(error.code)) return null
      throw error
    })
    return answer && hashesOf(answer.path)
  }

  /** Adds to `#logged` those of the entries that are in the log, and reports the others. */
  async #prove(entries: readonly LogEntry[]): Promise<void> {
    const leaves = new Map(entries.map((entry) => [toHex(entryLeaf(entry)), entry]))
    const unknown = [...leaves.keys()].filter((leaf) => !this.#logged.has(leaf))
    const shown = this.#known!
    for (const some of chunksOf(unknown, LOOKUP_MAX)) {
      const proven = await this.#placesOf(some, shown.checkpoint)
      for (const leaf of some) {
        if (proven.has(leaf)) this.#logged.add(leaf)
        else this.#report(leaf, { type: 'statement_not_logged', ...leaves.get(leaf)!, shown })
      }
    }
  }

  /** Returns the proven index of each leaf that is in the log. */
  async #placesOf(leaves: readonly string[], { size, rootHash }: Checkpoint): Promise<ReadonlyMap<string, number>> {
    const answer = await this.#ask('inclusion', { size, leaves }).catch((error) => this.#withheld(error))
    const proofs = Array.isArray(answer?.proofs) ? (answer.proofs as Record<string, unknown>[]) : []
    const isProven = ({ leaf, index, path }: Record<string, unknown>): boolean => {
      if (typeof leaf !== 'string' || !leaves.includes(leaf) || typeof index !== 'number') return false
      const root = rootOfInclusion({ leaf: fromHex(leaf), index, size, path: hashesOf(path) })
      return root !== null && toHex(root) === toHex(rootHash)
    }
    return new Map(proofs.filter(isProven).map(({ leaf, index }) => [leaf as string, index as number]))
  }

  async #ask(what: 'checkpoint' | 'inclusion' | 'consistency', json: object): Promise<Record<string, unknown>> {
    const answer = await this.parts.access.ask({ method: 'POST', path: `/v1/log/${what}`, json })
    return answer.json()
  }

  #report(key: string, event: LogEvent): void {
    if (this.#reported.has(key)) return
    this.#reported.add(key)
    this.parts.emit(event)
  }
}

/**
 * Returns the entries of the log from one number up to another, as the broker shows them; fewer if it shows fewer.
 * @throws SealpostError `answer_malformed`, `connection_lost`, and the broker's refusals @internal
 */
export async function readLogEntries(
  access: HttpAccess,
  { from, to }: { readonly from: number; readonly to: number },
): Promise<readonly LogEntry[]> {
  const entries: LogEntry[] = []
  while (from + entries.length < to) {
    const path = `/v1/log/entries?from=${from + entries.length}`
    const page = (await access.ask({ method: 'GET', path })).json<{ entries: unknown }>().entries
    if (!Array.isArray(page)) throw answerMalformed()
    if (page.length === 0) break
    entries.push(...page.map(({ kind, statement }) => ({ kind, statement: bytesOf(statement) })))
  }
  return entries.slice(0, to - from)
}

function entriesIn(record: StoreRecord): readonly LogEntry[] {
  if (record.kind === 'proof') return [{ kind: record.proof, statement: record.bytes }]
  return record.kind === 'revocation' ? [{ kind: record.kind, statement: record.bytes }] : []
}

function hashesOf(path: unknown): readonly Uint8Array[] {
  const bytes = bytesOf(path)
  if (bytes.length % HASH_BYTES !== 0) throw answerMalformed()
  return Array.from({ length: bytes.length / HASH_BYTES }, (_, at) =>
    bytes.subarray(at * HASH_BYTES, (at + 1) * HASH_BYTES),
  )
}
