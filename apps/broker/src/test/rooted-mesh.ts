/** Provides a mesh with a root whose broker is real, and changes its database as an operator can. */
import { createInvite, generateIdentity, generateSigningKeys, type SigningKeys } from '@sealpost/identity'
import { connect, type Peer } from '@sealpost/sdk'
import { join } from '@sealpost/sdk/join'
import {
  guardMembers,
  type MemberProofs,
  type MemberProofsOptions,
  type MembersEvent,
  openMemberProofs,
} from '@sealpost/sdk/members'
import type { PeerKey } from '@sealpost/std'
import type { Place, World } from './world.ts'

/** A mesh with a root, its admin Ada, and Ben and Carol, who have joined by invite. */
export interface Scene {
  readonly world: World
  readonly ada: Place
  readonly ben: Place
  readonly carol: Place
  readonly peer: Peer
  readonly members: MemberProofs
  readonly events: MembersEvent[]
  readonly root: SigningKeys
}

async function inviteTo(world: World, issuer: Place, role: 'member' | 'admin' = 'member'): Promise<string> {
  const { meshId } = world
  return createInvite(issuer.identity.signing, { meshId, url: issuer.url as string, brokerKey: issuer.brokerKey, role })
}

export async function joinAs(world: World, name: string, issuer: Place, role?: 'member' | 'admin'): Promise<Place> {
  const identity = generateIdentity()
  await join({ invite: await inviteTo(world, issuer, role), identity, name })
  return world.place(identity)
}

export async function rootedMesh(host: World): Promise<Scene> {
  const world = await host.inNewMesh()
  const ada = await world.enrolAdmin('ada')
  const peer = world.closing(await connect(ada))
  const root = generateSigningKeys()
  const { members, events } = await proofsOf(world, ada)
  await members.adopt(root, await peer.members())
  const ben = await joinAs(world, 'ben', ada)
  const carol = await joinAs(world, 'carol', ada) // hers are the last entries of the log
  guardMembers(peer, members)
  return { world, ada, ben, carol, peer, members, events, root }
}

export async function proofsOf(world: World, place: Place, options: Partial<MemberProofsOptions> = {}) {
  const events: MembersEvent[] = []
  const onEvent = (event: MembersEvent) => void events.push(event)
  const members = world.closing(await openMemberProofs({ ...place, ...options, onEvent }))
  return { members, events }
}

/** Returns each member's name and standing. */
export async function standings({ peer, members }: Pick<Scene, 'peer' | 'members'>): Promise<Record<string, string>> {
  const listed = await peer.members()
  const found = await members.check(listed)
  return Object.fromEntries(listed.map(({ peer: key, name }) => [name, found.get(key)!]))
}

export const keyLiteral = (key: PeerKey): string => `'\\x${key}'::bytea`

/** The lock of `log_backfill`, without which brokers complete no log. */
const BACKFILL_LOCK = 1_587_646_553

/** Lets the mesh appear to have no log yet. Call once for each database. */
export async function hideLog(world: World): Promise<void> {
  await attack(world, `select pg_advisory_lock(${BACKFILL_LOCK})`) // held until the world ends
  await attack(world, `update mesh_log set is_complete = false where mesh_id = MESH`)
}

export const attack = (world: World, statement: string): Promise<unknown> =>
  world.db.run((sql) => sql.unsafe(statement.replaceAll('MESH', `'${world.meshId}'::uuid`)))
