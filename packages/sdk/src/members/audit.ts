/**
 * Exports the transparent log of a mesh, and audits the export without a broker (`@sealpost/sdk/audit`, docs/adr/0023).
 */
import { type InviteRole, MembershipProofs, readGroup, readPool, ready } from '@sealpost/identity'
import {
  type Checkpoint,
  type EntryKind,
  entryLeaf,
  isBrokerKey,
  isEntrySigned,
  keyBindingStatement,
  type LogEntry,
  readCheckpoint,
  readKeyBindingStatement,
  TreeBuilder,
  type TreeHead,
} from '@sealpost/identity/log'
import { LOOKUP_MAX } from '@sealpost/protocol'
import { fromBase64url, type MeshId, type Millis, type PeerKey, toBase64url, toHex, unicodeName } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import { answerMalformed, bytesOf } from '../http/access.ts'
import { chunksOf } from '../outbox/lane.ts'
import type { MemberEntry } from '../requests/requests.ts'
import { LoggedSuccessors } from './logged-successors.ts'
import type { MemberProofs } from './member-proofs.ts'
import { readLogEntries, type SignedCheckpoint } from './mesh-log.ts'

const FORMAT = 'sealpost-log/1'

interface ExportedCheckpoint {
  readonly checkpoint: string
  readonly certificate: string | null
}

/** A log as JSON, with what its broker lists beside it. Statements and checkpoints are in base64url. */
export interface LogExport extends ExportedCheckpoint {
  readonly format: typeof FORMAT
  readonly meshId: MeshId
  /** The broker key and the root that the exporting member has pinned; null if it knows no root. */
  readonly brokerKey: PeerKey
  readonly root: PeerKey | null
  /** The newest checkpoint that the exporting member had verified before. */
  readonly known: ExportedCheckpoint | null
  readonly entries: readonly { readonly kind: string; readonly statement: string }[]
  /** The members that the broker lists, and their key bindings. */
  readonly members: readonly { readonly peer: PeerKey; readonly name: string; readonly role: InviteRole }[]
  readonly bindings: readonly string[]
  /** The newest statements of the groups of the exporting member, and of the pools. */
  readonly groups: readonly string[]
  readonly pools: readonly string[]
}

/** What the broker lists to the exporting member over its connection. */
export interface ListedMesh {
  /** `peer.members()`. */
  readonly members: readonly MemberEntry[]
  /** The `statement` of each pool in `poolsOf(peer).list()`. */
  readonly pools: readonly Uint8Array[]
}

/**
 * Exports the log, and what the broker lists beside it.
 * @throws SealpostError `connection_lost`, and the broker's refusals: `log_incomplete`, `log_broken`, or `not_found` of an
 * earlier version
 * @example const file = await exportLog(members, { members: await peer.members(), pools: [] })
 */
export async function exportLog(members: MemberProofs, { members: listed, pools }: ListedMesh): Promise<LogExport> {
  const { meshId, brokerKey } = members.log.parts
  // Before the checkpoint, so that the log contains all of it.
  const bindings = await bindingsOf(members, listed)
  const groups = await groupsOf(members)
  const shown = await members.log.shown()
  const known = members.log.signed
  const entries = await readLogEntries(members.log.parts.access, { from: 0, to: shown.checkpoint.size })
  return {
    ...{ format: FORMAT, meshId, brokerKey, root: members.root },
    ...exported(shown),
    known: known && exported(known),
    entries: entries.map(({ kind, statement }) => ({ kind, statement: toBase64url(statement) })),
    members: listed.map(({ peer, name, role }) => ({ peer, name, role })),
    ...{ bindings, groups, pools: pools.map(toBase64url) },
  }
}

const exported = ({ checkpoint, certificate }: SignedCheckpoint): ExportedCheckpoint => ({
  checkpoint: toBase64url(checkpoint.bytes),
  certificate: certificate && toBase64url(certificate),
})

async function bindingsOf({ log }: MemberProofs, listed: readonly MemberEntry[]): Promise<string[]> {
  const { access, meshId } = log.parts
  const found: string[] = []
  for (const some of chunksOf(
    listed.map(({ peer }) => peer),
    LOOKUP_MAX,
  )) {
    const json = { peers: some }
    const { bindings } = (await access.ask({ method: 'POST', path: '/v1/lookup', json })).json<{ bindings: unknown }>()
    if (!Array.isArray(bindings)) throw answerMalformed()
    for (const { peer, boxKey, boxEpoch, notAfterMs, signature } of bindings) {
      const binding = { meshId, peerKey: peer, boxKey: bytesOf(boxKey), boxEpoch, notAfterMs }
      found.push(toBase64url(keyBindingStatement({ ...binding, signature: bytesOf(signature) })))
    }
  }
  return found
}

async function groupsOf({ log }: MemberProofs): Promise<string[]> {
  const statements: string[] = []
  for (let after = '0'.repeat(32), isLast = false; !isLast; ) {
    const page = (await log.parts.access.ask({ method: 'GET', path: `/v1/groups?after=${after}` })).json<{
      groups: { group: string; statement: string }[]
      isLast: boolean
    }>()
    statements.push(...page.groups.map(({ statement }) => statement))
    after = page.groups.at(-1)?.group ?? after
    isLast = page.isLast || page.groups.length === 0
  }
  return statements
}

/**
 * What an audit can find. The first group contradicts the broker's signature, the second one its lists, and `note`s can
 * have an innocent reason.
 */
export type AuditCode =
  /** The checkpoint is not signed by the pinned broker key, or by a shard that it certified. */
  | 'checkpoint_forged'
  /** The entries don't give the root hash of the checkpoint, or are fewer. */
  | 'tree_differs'
  /** The log does not continue the checkpoint that the member had verified before, or is shorter. */
  | 'log_forked'
  | 'log_rolled_back'
  /** A signature is invalid, or a revocation is missing or out of order. */
  | 'entry_forged'
  | 'revocations_broken'
  /** The newest root in the log is not the pinned one. */
  | 'root_differs'
  /** The list contains a member, a key binding, a group or a pool that the log does not prove, or an older one than the log. */
  | 'member_unproven'
  | 'binding_not_logged'
  | 'statement_not_logged'
  | 'group_rolled_back'
  | 'pool_rolled_back'
  /** The broker lists the successor of a key whose user had cancelled this recovery. */
  | 'recovery_cancelled'
  /** A note: the log proves a member that the broker does not list, for example because it was revoked without a signature. */
  | 'member_unlisted'
  /** A note: this version does not know the kind of the entry. */
  | 'entry_unknown'

export interface AuditFinding {
  readonly code: AuditCode
  /** The number of the entry, a name, a key or an id. */
  readonly about: string
  readonly reason: string | null
}

export interface AuditReport {
  readonly meshId: MeshId
  readonly checkpoint: Checkpoint | null
  readonly entries: Readonly<Partial<Record<EntryKind, number>>>
  readonly root: PeerKey | null
  readonly members: number
  readonly revocations: number
  readonly problems: readonly AuditFinding[]
  readonly notes: readonly AuditFinding[]
}

/** What the auditor trusts, instead of what the export contains. */
export interface AuditPins {
  readonly brokerKey?: PeerKey | undefined
  readonly root?: PeerKey | undefined
  /** A checkpoint that the auditor has verified. */
  readonly known?: Uint8Array | undefined
}

/**
 * Verifies an export: the signature of the checkpoint, the tree, every statement, and that the log proves every listed
 * member, binding, group and pool. Sends nothing.
 * @throws SealpostError `export_malformed`
 * @example const { problems } = await auditLog(JSON.parse(text), { brokerKey })
 */
export async function auditLog(file: unknown, pins: AuditPins = {}): Promise<AuditReport> {
  await ready()
  if (!isExport(file)) throw exportMalformed()
  try {
    return new Audit(file, pins).run()
  } catch (error) {
    throw error instanceof SealpostError ? error : exportMalformed(error) // a field has another form
  }
}

const exportMalformed = (cause?: unknown): SealpostError =>
  new SealpostError('export_malformed', 'This is not an export of a log, or a part of it is missing.', { cause })

function isExport(file: unknown): file is LogExport {
  const { format, entries, members, bindings, groups, pools } = (file ?? {}) as Partial<LogExport>
  return format === FORMAT && [entries, members, bindings, groups, pools].every(Array.isArray)
}

const NOTES: readonly AuditCode[] = ['member_unlisted', 'entry_unknown']

class Audit {
  readonly #file: LogExport
  readonly #pins: AuditPins
  readonly #entries: readonly LogEntry[]
  readonly #leaves: ReadonlySet<string>
  readonly #listed: ReadonlySet<PeerKey>
  readonly #successors: LoggedSuccessors
  readonly #findings: AuditFinding[] = []

  constructor(file: LogExport, pins: AuditPins) {
    this.#file = file
    const { brokerKey = file.brokerKey, root = file.root ?? undefined, known } = pins
    this.#pins = { brokerKey, root, known }
    this.#entries = file.entries.map(({ kind, statement }) => ({
      kind: kind as EntryKind,
      statement: fromBase64url(statement),
    }))
    this.#leaves = new Set(this.#entries.map((entry) => leafText(entry)))
    this.#listed = new Set(file.members.map(({ peer }) => peer))
    this.#successors = new LoggedSuccessors(this.#entries)
  }

  run(): AuditReport {
    const checkpoint = this.#checkpoint()
    this.#checkTree(checkpoint)
    this.#checkSignatures()
    const root = this.#checkRoot()
    const recoveries = this.#checkRecoveries()
    const proofs = root && this.#replay(root, recoveries)
    if (proofs) this.#checkMembers(proofs, checkpoint?.atMs ?? 0)
    this.#checkBindings()
    this.#checkLists('group')
    this.#checkLists('pool')
    const isNote = ({ code }: AuditFinding) => NOTES.includes(code)
    return {
      ...{ meshId: this.#file.meshId, checkpoint, root, entries: this.#counts(), members: this.#file.members.length },
      revocations: this.#of('revocation').length,
      problems: this.#findings.filter((finding) => !isNote(finding)),
      notes: this.#findings.filter(isNote),
    }
  }

  #find(code: AuditCode, about: string | number, reason: string | null = null): void {
    this.#findings.push({ code, about: String(about), reason })
  }

  #of(kind: EntryKind): readonly Uint8Array[] {
    return this.#entries.filter((entry) => entry.kind === kind).map(({ statement }) => statement)
  }

  #counts(): Partial<Record<EntryKind, number>> {
    const counts: Partial<Record<EntryKind, number>> = {}
    for (const { kind } of this.#entries) counts[kind] = (counts[kind] ?? 0) + 1
    return counts
  }

  #checkpoint(): Checkpoint | null {
    const { checkpoint: text, certificate, meshId } = this.#file
    const checkpoint = readCheckpoint(fromBase64url(text), meshId)
    const { brokerKey = this.#file.brokerKey } = this.#pins
    const claim = { brokerKey, certificate: certificate === null ? null : fromBase64url(certificate) }
    const isSigned = checkpoint && isBrokerKey(checkpoint, claim)
    if (!isSigned) this.#find('checkpoint_forged', checkpoint?.signer ?? 'checkpoint')
    return isSigned ? checkpoint : null
  }

  /** Builds the tree, and compares it with the checkpoint and with those that were verified before. */
  #checkTree(checkpoint: Checkpoint | null): void {
    const known = [this.#file.known?.checkpoint, this.#pins.known && toBase64url(this.#pins.known)]
      .flatMap((text) => (text ? [readCheckpoint(fromBase64url(text), this.#file.meshId)] : []))
      .filter((each) => each !== null)
    const builder = new TreeBuilder()
    const compare = () => {
      for (const head of known)
        if (head.size === builder.size && !isSameTree(head, builder)) this.#find('log_forked', head.size)
    }
    compare()
    for (const entry of this.#entries) {
      builder.append(entryLeaf(entry))
      compare()
    }
    for (const { size } of known) if (size > builder.size) this.#find('log_rolled_back', size)
    if (checkpoint && !isSameTree(checkpoint, builder)) this.#find('tree_differs', builder.size)
  }

  #checkSignatures(): void {
    for (const [at, entry] of this.#entries.entries()) {
      if (!KINDS.includes(entry.kind)) this.#find('entry_unknown', at, entry.kind)
      else if (!isEntrySigned(entry, this.#file.meshId)) this.#find('entry_forged', at, entry.kind)
    }
  }

  /** Returns the root that counts: the pinned one, otherwise the newest in the log. */
  #checkRoot(): PeerKey | null {
    const newest = this.#of('root').at(-1)
    const logged = newest ? (toHex(newest) as PeerKey) : null
    const { root = null } = this.#pins
    if (root !== null && root !== logged) this.#find('root_differs', logged ?? 'none')
    return root ?? logged
  }

  /** Returns the recoveries that took effect, without those that their users had cancelled. */
  #checkRecoveries(): ReadonlySet<Uint8Array> {
    const applied = this.#successors.applied(this.#listed)
    const names = new Map(this.#file.members.map(({ peer, name }) => [peer, name]))
    for (const { successor, isCancelled } of applied)
      if (isCancelled) this.#find('recovery_cancelled', names.get(successor) ?? successor)
    return new Set(applied.filter(({ isCancelled }) => !isCancelled).map(({ statement }) => statement))
  }

  #replay(root: PeerKey, recoveries: ReadonlySet<Uint8Array>): MembershipProofs {
    const proofs = new MembershipProofs({ meshId: this.#file.meshId, root })
    for (const [at, { kind, statement }] of this.#entries.entries()) {
      if (kind === 'revocation') {
        const outcome = proofs.addRevocation(statement)
        if (outcome !== 'added') this.#find('revocations_broken', at, outcome)
      } else if (recoveries.has(statement)) proofs.add('recovery', statement)
      else if (isProof(kind)) proofs.add(kind, statement)
    }
    return proofs
  }

  #checkMembers(proofs: MembershipProofs, nowMs: Millis): void {
    for (const { peer, name, role } of this.#file.members) {
      const standing = proofs.standingOf(peer, nowMs)
      const reason = !standing.proven
        ? standing.reason
        : !standing.proven.names.some((each) => unicodeName(each) === name)
          ? 'name_differs'
          : standing.proven.role !== role && 'role_differs'
      if (reason) this.#find('member_unproven', name, reason)
    }
    for (const peer of new Set(this.#of('binding').map((bytes) => readKeyBindingStatement(bytes)?.peerKey))) {
      if (!peer || this.#listed.has(peer) || this.#successors.isFormer(peer)) continue
      const { proven } = proofs.standingOf(peer, nowMs)
      if (proven) this.#find('member_unlisted', proven.names[0] ?? peer, peer)
    }
  }

  #checkBindings(): void {
    const bound = new Set<PeerKey>()
    for (const text of this.#file.bindings) {
      const statement = fromBase64url(text)
      const binding = readKeyBindingStatement(statement)
      if (binding) bound.add(binding.peerKey)
      if (!this.#leaves.has(leafText({ kind: 'binding', statement })))
        this.#find('binding_not_logged', binding?.peerKey ?? 'binding')
    }
    for (const { peer, name } of this.#file.members)
      if (!bound.has(peer)) this.#find('binding_not_logged', name, 'no_binding')
  }

  #checkLists(kind: keyof typeof LISTS): void {
    const { headOf, listed } = LISTS[kind]
    const newest = new Map<string, number>()
    for (const bytes of this.#of(kind)) {
      const { id, epoch } = headOf(bytes)
      newest.set(id, Math.max(epoch, newest.get(id) ?? 0))
    }
    for (const text of this.#file[listed]) {
      const statement = fromBase64url(text)
      const { id, epoch } = headOf(statement)
      if (!this.#leaves.has(leafText({ kind, statement }))) this.#find('statement_not_logged', id, kind)
      else if (epoch < newest.get(id)!) this.#find(`${kind}_rolled_back`, id)
    }
  }
}

interface ListHead {
  readonly id: string
  readonly epoch: number
}

/** How to read the lists of members that the broker shows. An invalid statement has no id. */
const LISTS = {
  group: {
    listed: 'groups',
    headOf: (bytes: Uint8Array): ListHead => {
      const group = readGroup(bytes)
      return { id: group?.groupId ?? '', epoch: group?.epoch ?? 0 }
    },
  },
  pool: {
    listed: 'pools',
    headOf: (bytes: Uint8Array): ListHead => {
      const pool = readPool(bytes)
      return { id: pool?.poolId ?? '', epoch: pool?.epoch ?? 0 }
    },
  },
} as const

const PROOFS = ['certificate', 'endorsement', 'admission', 'device', 'removal', 'succession'] as const
const OTHERS = ['binding', 'group', 'pool', 'revocation', 'root', 'heirs', 'recovery'] as const
const KINDS: readonly string[] = [...PROOFS, ...OTHERS] satisfies EntryKind[]

const isProof = (kind: EntryKind): kind is (typeof PROOFS)[number] => (PROOFS as readonly string[]).includes(kind)
const leafText = (entry: LogEntry): string => toHex(entryLeaf(entry))
const isSameTree = (a: TreeHead, b: TreeHead): boolean => a.size === b.size && toHex(a.rootHash) === toHex(b.rootHash)
