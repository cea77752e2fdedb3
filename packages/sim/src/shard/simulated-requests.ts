/** Checks, lookups and members' requests, each one or two statements in the simulated database. */
import type {
  Authentication,
  Enrolment,
  FoundGroups,
  FrameOfRequest,
  Replies,
  Requester,
  RequestTable,
  RequestType,
  Sought,
} from '@sealpost/core'
import type { Prover, RequestServices, Resolution } from '@sealpost/driver'
import { BATCH_MAX, type FrameOf, MEMBER_PAGE_MAX } from '@sealpost/protocol'
import type { GroupId, MeshId } from '@sealpost/std'
import { poolStatementOf } from '../peer/crypto.ts'
import type { ShardRun } from '../surroundings.ts'
import type { SimulatedConnection } from './simulated-connection.ts'
import type { SimulatedQueue } from './simulated-queue.ts'
import type { WatchedStatements } from './watched-statements.ts'

/** Peers of a world don't send the missing requests: groups and pools are seeded. */
type RequestStatements = {
  readonly [Type in RequestType]?: (requester: Requester, frame: FrameOfRequest<Type>) => Replies[Type]
}

interface RequestParts {
  readonly queue: SimulatedQueue
  readonly statements: WatchedStatements
  readonly connectionOf: (authority: string) => SimulatedConnection
}

const PROOF = new Uint8Array(64)

export class SimulatedRequests implements RequestServices {
  readonly table: RequestTable
  readonly #shard: ShardRun
  readonly #parts: RequestParts
  readonly #statements: RequestStatements

  constructor(shard: ShardRun, parts: RequestParts) {
    this.#shard = shard
    this.#parts = parts
    this.#statements = this.#statementsOf()
    const types = Object.keys(this.#statements) as RequestType[]
    this.table = Object.fromEntries(
      types.map((type) => [type, (requester: Requester, frame: never) => this.#reply(type, requester, frame)]),
    ) as unknown as RequestTable
  }

  async authenticate(
    { authority }: Prover,
    _hello: FrameOf<'hello'>,
    { meshId, peerKey }: FrameOf<'auth'>,
  ): Promise<Authentication> {
    const { queue, connectionOf } = this.#parts
    const [member = null] = await queue.findMembers(meshId, [peerKey])
    connectionOf(authority).member = member
    return { member, isSignatureGood: true, proof: PROOF }
  }

  async enrol(): Promise<Enrolment> {
    return { status: 'invite_refused' }
  }

  async resolve(meshId: MeshId, { peers, groups, pools }: Sought): Promise<Resolution> {
    const { queue } = this.#parts
    const [members, foundPools] = await Promise.all([
      queue.findMembers(meshId, peers),
      pools.length > 0 ? queue.findPools(meshId, pools) : [],
    ])
    this.#shard.heard.heardOfMembers(members)
    return { members, successors: new Map(), groups: this.#foundGroups(meshId, groups), pools: foundPools, spaces: [] }
  }

  async #reply<Type extends RequestType>(
    type: Type,
    requester: Requester,
    frame: FrameOfRequest<Type>,
  ): Promise<Replies[Type]> {
    const { world, heard } = this.#shard
    const reply = await this.#parts.queue.ask(type, () => this.#statements[type]!(requester, frame))
    if (type === 'revoke') world.revocations.heardBy(this.#shard)
    if (type === 'consent') heard.heardOf(requester.meshId, requester.peer, (reply as Replies['consent']).consent)
    return reply
  }

  #statementsOf(): RequestStatements {
    const { world } = this.#shard
    const { statements } = this.#parts
    return {
      lookup: ({ meshId }, { peers }) => ({
        bindings: statements.findBindings(meshId, peers),
        users: { statements: [], removals: [], successions: [] },
      }),
      lookupHistory: ({ meshId }, { peer }) => [
        ...statements.findBindings(meshId, [peer]),
        ...world.turns.formersOf({ meshId, peer }),
      ],
      members: ({ meshId }, { after }) => {
        const keys = world.store.keysAfter(meshId, after, MEMBER_PAGE_MAX + 1)
        const page = keys.slice(0, MEMBER_PAGE_MAX).map((peer) => ({ peer, name: '', role: 'member' as const }))
        return { members: page, isLast: keys.length <= MEMBER_PAGE_MAX }
      },
      revoke: () => {
        const { revocations, store, oracle } = world
        return { outcome: 'done', ended: revocations.commit(store, oracle) }
      },
      consent: (requester, frame) => world.consents.change(world.store, requester, frame),
      bind: ({ meshId, peerKey }, frame) => world.turns.bind(world.store, { meshId, peer: peerKey }, frame),
      groups: ({ meshId }) => ({ groups: [world.groupIn(meshId)], isLast: true }),
      pools: ({ meshId }) => ({ statements: [poolStatementOf(meshId, world.members)], isLast: true }),
      joinPool: ({ meshId }, { pool }) => ({ pool: statements.pools.find(meshId, [pool])[0] ?? null }),
      findLost: ({ meshId, peer }) => {
        const lost = statements.findLost(meshId, peer, BATCH_MAX)
        return { lost, isAll: lost.length < BATCH_MAX }
      },
    }
  }

  #foundGroups(meshId: MeshId, asked: readonly GroupId[]): FoundGroups {
    const group = this.#shard.world.groupIn(meshId)
    return new Map(asked.map((id) => [id, id === group.groupId ? group : null]))
  }
}
