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
import { poolStatementOf } from '../peer/pool.ts'
import type { ShardLife } from './shard-life.ts'

/** Peers of a world don't send the missing requests: groups and pools are seeded. */
export type RequestStatements = {
  readonly [Type in RequestType]?: (requester: Requester, frame: FrameOfRequest<Type>) => Replies[Type]
}

export type RequestCall<Type extends RequestType> = [type: Type, requester: Requester, frame: FrameOfRequest<Type>]

const PROOF = new Uint8Array(64)

export class SimulatedRequests implements RequestServices {
  readonly table: RequestTable
  protected readonly life: ShardLife
  readonly #statements: RequestStatements

  constructor(life: ShardLife) {
    this.life = life
    this.#statements = this.statementsOf()
    const types = Object.keys(this.#statements) as RequestType[]
    this.table = Object.fromEntries(
      types.map((type) => [type, (requester: Requester, frame: never) => this.reply(type, requester, frame)]),
    ) as unknown as RequestTable
  }

  async authenticate(
    { authority }: Prover,
    _hello: FrameOf<'hello'>,
    { meshId, peerKey }: FrameOf<'auth'>,
  ): Promise<Authentication> {
    const [member = null] = await this.life.queue.findMembers(meshId, [peerKey])
    this.life.connectionOf(authority).member = member
    return { member, isSignatureGood: true, proof: PROOF }
  }

  async enrol(): Promise<Enrolment> {
    return { status: 'invite_refused' }
  }

  async resolve(meshId: MeshId, { peers, groups, pools }: Sought): Promise<Resolution> {
    const [members, foundPools] = await Promise.all([
      this.life.queue.findMembers(meshId, peers),
      pools.length > 0 ? this.life.queue.findPools(meshId, pools) : [],
    ])
    this.life.heard.heardOfMembers(members)
    return { members, successors: new Map(), groups: this.#foundGroups(meshId, groups), pools: foundPools, spaces: [] }
  }

  protected async reply<Type extends RequestType>(
    ...[type, requester, frame]: RequestCall<Type>
  ): Promise<Replies[Type]> {
    const { life } = this
    const reply = await life.queue.ask(type, () => this.#statements[type]!(requester, frame))
    if (type === 'revoke') life.world.revocations.heardBy(life)
    if (type === 'consent') life.heard.heardOf(requester.meshId, requester.peer, (reply as Replies['consent']).consent)
    return reply
  }

  protected statementsOf(): RequestStatements {
    const { world, statements } = this.life
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
    const group = this.life.world.groupIn(meshId)
    return new Map(asked.map((id) => [id, id === group.groupId ? group : null]))
  }
}
