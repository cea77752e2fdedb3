/** Provides worlds with a broker that lies about the members of a mesh with a root. */
import {
  generateIdentity,
  type Identity,
  MembershipProofs,
  type SigningKeys,
  signEndorsement,
  signRevocation,
} from '@sealpost/identity'
import { type MeshId, type PeerKey, type Random, toBase64url } from '@sealpost/std'
import { type MemberProofs, type MembersEvent, openMemberProofs } from '../members/member-proofs.ts'
import { MemoryStore } from '../stores/memory-store.ts'
import { SpaceBroker } from './space-broker.ts'

const keyOf = ({ signing }: Identity): PeerKey => signing.publicKey

/** What `POST /v1/proofs` returns. */
interface Shown {
  readonly endorsed: Identity[]
  revocations: Uint8Array[]
}

export class ProofsWorld {
  readonly reports: MembersEvent['type'][] = []
  readonly shown: Shown = { endorsed: [], revocations: [] }
  readonly root: SigningKeys = generateIdentity().signing
  readonly #broker = new SpaceBroker()
  readonly #reader: Identity

  constructor(reader: Identity) {
    this.#reader = this.#broker.join(reader)
    this.shown.endorsed.push(reader)
  }

  get meshId(): MeshId {
    return this.#broker.meshId
  }

  /** Opens the proofs in a process. */
  open(store = new MemoryStore()): Promise<MemberProofs> {
    const { url, brokerKey, meshId } = this.#broker.placeOf(this.#reader)
    const { reports } = this
    return openMemberProofs({
      ...{ url, brokerKey, meshId, identity: this.#reader, store, root: this.root.publicKey },
      fetch: (href, init) => this.#fetch(href, init),
      onEvent: ({ type }) => void reports.push(type),
    })
  }

  /** Signs the next revocation. */
  revoke(member: Identity): Uint8Array {
    const { root, meshId } = this
    const proofs = new MembershipProofs({ meshId, root: root.publicKey })
    for (const bytes of this.shown.revocations) proofs.addRevocation(bytes)
    const terms = { number: proofs.revocationCount + 1, previous: proofs.revocationHash, peerKey: keyOf(member) }
    return signRevocation(root, { meshId, ...terms, atMs: 2 })
  }

  /** Returns what differs from these reports, or null. */
  async reportsOnly(...expected: MembersEvent['type'][]): Promise<string | null> {
    await Promise.resolve() // reports are made in a microtask
    const missing = expected.filter((type) => !this.reports.includes(type))
    const others = this.reports.filter((type) => !expected.includes(type))
    if (missing.length > 0) return `${missing.join(', ')} was not reported`
    return others.length > 0 ? `also reported: ${others.join(', ')}` : null
  }

  /** The broker has no log, like an earlier version. */
  #fetch(href: string, init: RequestInit): Promise<Response> {
    if (href.endsWith('/v1/proofs')) return Promise.resolve(this.#answer())
    if (href.includes('/v1/log/')) return Promise.resolve(Response.json({ code: 'not_found' }, { status: 404 }))
    return this.#broker.fetch(href, init)
  }

  #answer(): Response {
    const { meshId } = this
    const proofs = this.shown.endorsed.map((member, no) => {
      const terms = { meshId, peerKey: keyOf(member), name: `member-${no}`, role: 'member' as const, atMs: 1 }
      return { kind: 'endorsement', statement: toBase64url(signEndorsement(this.root, terms)) }
    })
    const revocations = this.shown.revocations.map(toBase64url)
    return Response.json({ root: this.root.publicKey, proofs, revocations, revocationCount: revocations.length })
  }
}

/** The broker lists a member that nobody certified. Returns what is wrong, or null. */
export async function ghostMember(random: Random): Promise<string | null> {
  const others = Array.from({ length: 1 + random.below(4) }, () => generateIdentity())
  const ghost = generateIdentity()
  const world = new ProofsWorld(generateIdentity())
  world.shown.endorsed.push(...others)
  await using members = await world.open()
  if (random.chance(0.5)) await members.unprovenAmong(others.map(keyOf))
  const unproven = await members.unprovenAmong([...others, ghost].map(keyOf))
  if (unproven.join() !== keyOf(ghost)) return 'the ghost is proven, or another member is not'
  return world.reportsOnly('member_unproven')
}

/** The broker hides a revocation from a process, of which an earlier one has seen it. Returns what is wrong, or null. */
export async function hiddenRevocation(random: Random): Promise<string | null> {
  const [bob, carol] = [generateIdentity(), generateIdentity()]
  const world = new ProofsWorld(generateIdentity())
  const { shown } = world
  shown.endorsed.push(bob, carol)
  for (let i = random.below(3); i > 0; i--) shown.revocations.push(world.revoke(generateIdentity()))
  shown.revocations.push(world.revoke(carol))
  const store = new MemoryStore()
  const before = await world.open(store)
  await before.unprovenAmong([bob, carol].map(keyOf))
  await before.close()
  shown.revocations = shown.revocations.slice(0, random.below(shown.revocations.length))
  await using members = await world.open(new MemoryStore(store.records))
  const unproven = await members.unprovenAmong([bob, carol].map(keyOf))
  if (unproven.join() !== keyOf(carol)) return 'the revoked member is proven, or another member is not'
  return world.reportsOnly('member_unproven', 'revocations_rolled_back')
}
