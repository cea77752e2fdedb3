/** Connects the driver's checks and lookups, and each request of a member, to the services. */
import type { RequestTable, Sought } from '@sealpost/core'
import type { RequestServices, Resolution } from '@sealpost/driver'
import { BATCH_MAX } from '@sealpost/protocol'
import type { Queue } from '@sealpost/queue'
import type { MeshId } from '@sealpost/std'
import type { Cells } from '../shards/cells.ts'
import type { SpaceLookup } from '../spaces/space-lookup.ts'
import type { Authenticator } from './authenticator.ts'
import type { EnrolmentService } from './enrolment.ts'
import type { GroupService } from './groups.ts'
import type { MemberSettings } from './member-settings.ts'
import type { PoolService } from './pools.ts'
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

/** Before it replies that something does not exist, it checks that the mesh is in this cell. */
async function resolve(
  { queue, users, groups: groupService, cells, spaces: lookup }: DirectoryServices,
  meshId: MeshId,
  sought: Sought,
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
