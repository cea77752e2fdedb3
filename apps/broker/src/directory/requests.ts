/** Connects the driver's checks, lookups and member requests to the services. */
import type {
  ConsentReply,
  FoundGroups,
  GroupEntry,
  Lookup,
  Replies,
  Requester,
  RequestTable,
  SetGroupReply,
  SetPoolReply,
} from '@sealpost/core'
import type { RequestServices, Resolution } from '@sealpost/driver'
import {
  checkKeyBinding,
  type GroupStatement,
  groupFields,
  type PoolStatement,
  readGroup,
  readPool,
} from '@sealpost/identity'
import type { Database } from '@sealpost/pg'
import { BATCH_MAX, type FrameOf, GROUP_PAGE_MAX, type KeyBindingEntry } from '@sealpost/protocol'
import type { Queue } from '@sealpost/queue'
import { type GroupId, isChosenName, type MeshId, unicodeName } from '@sealpost/std'
import {
  BOX_EPOCH_MAX,
  changeConsent,
  findConsent,
  findGroups,
  findKeyHistory,
  findPoolStatement,
  type GroupRow,
  listGroups,
  listPools,
  putGroup,
  putPool,
  replaceBinding,
} from '@sealpost/store'
import type { Cells } from '../shards/cells.ts'
import type { SpaceLookup } from '../spaces/space-requests.ts'
import type { Authenticator, EnrolmentService } from './authenticator.ts'
import type { UserService } from './users.ts'

export interface DirectoryServices {
  readonly queue: Queue
  readonly enrolment: EnrolmentService
  readonly settings: MemberSettings
  readonly groups: GroupService
  readonly pools: PoolService
  readonly users: UserService
  readonly authenticator: Authenticator
  readonly cells: Cells
  readonly spaces: SpaceLookup
}

export function requestsOf(services: DirectoryServices): RequestServices {
  const { authenticator, enrolment, users } = services
  return {
    authenticate: (prover, hello, auth) => authenticator.authenticate(prover, hello, auth),
    enrol: (authority, hello, enrol) =>
      enrol.type === 'enrol' ? enrolment.enrol(authority, hello, enrol) : users.enrolDevice(authority, hello, enrol),
    resolve: (meshId, sought) => resolve(services, meshId, sought),
    table: requestTable(services),
  }
}

/**
 * Looks up members, groups, pools and spaces. Asserts that the mesh is here before it reports that something does not
 * exist.
 */
async function resolve(
  { queue, users, groups: groupService, cells, spaces: lookup }: DirectoryServices,
  meshId: MeshId,
  sought: Lookup,
): Promise<Resolution> {
  const [{ members, successors }, groups, pools, spaces] = await Promise.all([
    users.findMembers(meshId, sought.peers),
    groupService.find(meshId, sought.groups),
    sought.pools.length > 0 ? queue.findPools(meshId, sought.pools) : [],
    Promise.all(sought.spaces.map((space) => lookup.find(meshId, space))),
  ])
  const isAll =
    members.length >= sought.peers.length && groups.size >= sought.groups.length && pools.length >= sought.pools.length
  if (!isAll) await cells.assertHere(meshId)
  return { members, successors, groups, pools, spaces }
}

function requestTable(services: DirectoryServices): RequestTable {
  const { queue, enrolment, settings, groups, pools, users } = services
  return {
    lookup: async ({ meshId }, { peers }) => {
      const [bindings, records] = await Promise.all([queue.findBindings(meshId, peers), users.find(meshId, peers)])
      return { bindings, users: records }
    },
    lookupHistory: ({ meshId }, frame) => settings.history(meshId, frame),
    members: ({ meshId }, frame) => enrolment.list(meshId, frame),
    revoke: (requester, frame) => enrolment.revoke(requester, frame),
    consent: (requester, frame) => settings.consent(requester, frame),
    bind: (requester, frame) => settings.bind(requester, frame),
    groups: ({ meshId }, frame) => groups.list(meshId, frame),
    setGroup: (requester, frame) => groups.set(requester, frame),
    pools: ({ meshId }, frame) => pools.list(meshId, frame),
    setPool: (requester, frame) => pools.set(requester, frame),
    joinPool: async ({ meshId }, { pool: poolId }) => {
      const [pool = null] = await queue.findPools(meshId, [poolId])
      return { pool }
    },
    devices: ({ meshId }, { peers }) => users.find(meshId, peers),
    removeDevice: (requester, frame) => users.remove(requester, frame),
    succeed: (requester, frame) => users.succeed(requester, frame),
    findLost: async ({ meshId, peer }) => {
      const lost = await queue.findLost(meshId, peer, BATCH_MAX)
      return { lost, isAll: lost.length < BATCH_MAX }
    },
  }
}

export class PoolService {
  private readonly db: Database
  private readonly queue: Pick<Queue, 'findPools'>
  private readonly authenticator: Authenticator
  private readonly perOwnerMax: number

  constructor(
    db: Database,
    queue: Pick<Queue, 'findPools'>,
    { authenticator, perOwnerMax }: { authenticator: Authenticator; perOwnerMax: number },
  ) {
    this.db = db
    this.queue = queue
    this.authenticator = authenticator
    this.perOwnerMax = perOwnerMax
  }

  async set(requester: Requester, { statement }: FrameOf<'setPool'>): Promise<SetPoolReply | null> {
    const checked = await this.authenticator.inTurn(() => checkPool(requester, statement))
    if (checked === null || 'outcome' in checked) return checked
    if (!isChosenName(unicodeName(checked.name)) && !(await this.isNamedSo(requester, checked)))
      return { outcome: 'malformed' }
    const { poolId, epoch, members, bytes } = checked
    const record = { poolId, epoch, members, statement: bytes }
    const outcome = await putPool(this.db, requester, record, this.perOwnerMax)
    if (outcome !== 'done') return { outcome }
    const [pool = null] = await this.queue.findPools(requester.meshId, [poolId])
    return { outcome, pool }
  }

  private async isNamedSo({ meshId }: Requester, { poolId, name }: PoolStatement): Promise<boolean> {
    const former = await findPoolStatement(this.db, meshId, poolId)
    return former !== null && readPool(former)?.name === name
  }

  async list(meshId: MeshId, { after }: FrameOf<'pools'>): Promise<Replies['pools']> {
    const found = await listPools(this.db, meshId, { after, limit: GROUP_PAGE_MAX + 1 })
    const statements = found.slice(0, GROUP_PAGE_MAX).map(({ statement }) => statement)
    return { statements, isLast: found.length <= GROUP_PAGE_MAX }
  }
}

function checkPool({ meshId, peerKey }: Requester, statement: Uint8Array): PoolStatement | SetPoolReply {
  const pool = readPool(statement)
  if (pool?.meshId !== meshId) return { outcome: 'malformed' }
  return pool.owner === peerKey ? pool : { outcome: 'not_owner' }
}

export class MemberSettings {
  private readonly db: Database
  private readonly authenticator: Authenticator

  constructor(db: Database, authenticator: Authenticator) {
    this.db = db
    this.authenticator = authenticator
  }

  /** Changes the consent and returns it; `null` if the requester is no longer a member. @throws OperatingError */
  async consent(requester: Requester, { policy, changes }: FrameOf<'consent'>): Promise<ConsentReply | null> {
    const isAsking = policy === 'keep' && changes.length === 0
    const change = { policy: policy === 'keep' ? null : policy, verdicts: changes }
    const owner = { meshId: requester.meshId, peer: requester.user } // applies to all devices of the user
    const { isDone, unknown } = isAsking ? { isDone: true, unknown: [] } : await changeConsent(this.db, owner, change)
    const found = await findConsent(this.db, owner)
    if (!found) return null
    const { policy: standing, version, named } = found
    const isOpen = standing === 'open'
    return {
      outcome: isDone ? 'done' : 'too_many',
      peers: named.map(({ peerKey, isBlocked }) => ({ peer: peerKey, verdict: isBlocked ? 'blocked' : 'allowed' })),
      unknown,
      consent: {
        policy: standing,
        named: named.filter(({ isBlocked }) => isBlocked === isOpen).map(({ peer }) => peer),
        version,
      },
    }
  }

  async bind(requester: Requester, bind: FrameOf<'bind'>): Promise<FrameOf<'bound'>['outcome'] | null> {
    const verdict = await this.authenticator.inTurn(() => this.check(requester, bind))
    if (verdict === null || verdict === 'bad_binding') return verdict
    return replaceBinding(this.db, requester, bind)
  }

  history(meshId: MeshId, { peer }: FrameOf<'lookupHistory'>): Promise<KeyBindingEntry[]> {
    return findKeyHistory(this.db, meshId, peer)
  }

  private check({ meshId, peerKey }: Requester, bind: FrameOf<'bind'>): 'ok' | 'bad_binding' {
    const verdict = checkKeyBinding({ ...bind, meshId, peerKey }, { meshId, peerKey, nowMs: Date.now() })
    return verdict === 'ok' && bind.boxEpoch <= BOX_EPOCH_MAX ? 'ok' : 'bad_binding'
  }
}

/**
 * Manages the groups of a mesh. Checks signatures in the same queue as handshake signatures; one SQL statement decides
 * which group statement is current (`packages/store/src/groups/groups.ts`).
 */
export class GroupService {
  private readonly db: Database
  private readonly authenticator: Authenticator
  private readonly perOwnerMax: number

  constructor(db: Database, authenticator: Authenticator, perOwnerMax: number) {
    this.db = db
    this.authenticator = authenticator
    this.perOwnerMax = perOwnerMax
  }

  /** Returns `null` if too many checks wait. @throws OperatingError */
  async set(requester: Requester, { statement }: FrameOf<'setGroup'>): Promise<SetGroupReply | null> {
    const checked = await this.authenticator.inTurn(() => checkGroup(requester, statement))
    if (checked === null || 'outcome' in checked) return checked
    if (!isChosenName(unicodeName(checked.name)) && !(await this.isNamedSo(requester, checked)))
      return { outcome: 'malformed' }
    const group = { groupId: checked.groupId, epoch: checked.epoch, statement: checked.bytes }
    const outcome = await putGroup(this.db, requester, group, this.perOwnerMax)
    return outcome === 'done' ? { outcome, group } : { outcome }
  }

  /** Returns whether the group already has this name, which may precede the current rule. */
  private async isNamedSo({ meshId }: Requester, { groupId, name }: GroupStatement): Promise<boolean> {
    const [former] = await findGroups(this.db, meshId, [groupId])
    return former !== undefined && groupFields(former.statement)?.name === name
  }

  async list(meshId: MeshId, { after }: FrameOf<'groups'>): Promise<Replies['groups']> {
    const found: GroupRow[] = await listGroups(this.db, meshId, { after, limit: GROUP_PAGE_MAX + 1 })
    return { groups: found.slice(0, GROUP_PAGE_MAX), isLast: found.length <= GROUP_PAGE_MAX }
  }

  async find(meshId: MeshId, groups: readonly GroupId[]): Promise<FoundGroups> {
    const found = new Map<GroupId, GroupEntry | null>(groups.map((groupId) => [groupId, null]))
    if (groups.length === 0) return found
    for (const group of await findGroups(this.db, meshId, groups)) found.set(group.groupId, group)
    return found
  }
}

function checkGroup({ meshId, peerKey }: Requester, statement: Uint8Array): GroupStatement | SetGroupReply {
  const group = readGroup(statement)
  if (group?.meshId !== meshId) return { outcome: 'malformed' }
  return group.owner === peerKey ? group : { outcome: 'not_owner' }
}
