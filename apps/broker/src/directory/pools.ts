/** The pools of a mesh, like the groups in `groups.ts`. */
import type { Replies, Requester, SetPoolReply } from '@sealpost/core'
import { type PoolStatement, readPool } from '@sealpost/identity'
import type { Database } from '@sealpost/pg'
import { type FrameOf, GROUP_PAGE_MAX } from '@sealpost/protocol'
import type { Queue } from '@sealpost/queue'
import { isChosenName, type MeshId } from '@sealpost/std'
import { findPoolStatement, listPools, putPool } from '@sealpost/store'
import type { Authenticator } from './authenticator.ts'

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
    const checked = await this.authenticator.inTurn(() => check(requester, statement))
    if (checked === null || 'outcome' in checked) return checked
    if (!isChosenName(checked.name) && !(await this.isNamedSo(requester, checked))) return { outcome: 'malformed' }
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

function check({ meshId, peerKey }: Requester, statement: Uint8Array): PoolStatement | SetPoolReply {
  const pool = readPool(statement)
  if (pool?.meshId !== meshId) return { outcome: 'malformed' }
  return pool.owner === peerKey ? pool : { outcome: 'not_owner' }
}
