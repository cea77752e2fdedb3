/**
 * The use of each quota of a mesh, and its largest user. Reads as many rows as the quotas allow: don't poll it every
 * second.
 */

import type { Quota, QuotaList } from '@sealpost/operator'
import type { Database } from '@sealpost/pg'
import type { Measured } from '@sealpost/protocol'
import type { Queue } from '@sealpost/queue'
import type { MeshId, PeerKey, PeerNo } from '@sealpost/std'
import { countMembers, findLargestUses, findMeshes, findPeers, type QuotaUse } from '@sealpost/store'
import { type Config, limitsOf } from '../../config/config.ts'
import type { Census } from './census.ts'

export interface QuotaParts {
  readonly db: Database
  readonly queue: Pick<Queue, 'measure' | 'measureMesh'>
  readonly census: Census
  readonly config: Config
}

/** The limit of the count if a quota is off. */
const ROWS_MAX = 100_000

type Use = readonly [name: Quota['name'], used: number, setting: keyof Config & string, peer: PeerNo | PeerKey | null]

export class QuotaView {
  readonly #parts: QuotaParts

  constructor(parts: QuotaParts) {
    this.#parts = parts
  }

  async of(meshId: MeshId): Promise<QuotaList | undefined> {
    const { db } = this.#parts
    if ((await findMeshes(db, [meshId])).length === 0) return undefined
    const [members, largest] = [await countMembers(db, meshId), await findLargestUses(db, meshId)]
    const uses: Use[] = [
      ['members', members, 'MEMBERS_MAX', null],
      ...(await this.#meshUses(meshId)),
      ...(await this.#mailboxUses(meshId)),
      ...OF_MEMBERS.map((row) => useOf(row, largest)),
    ]
    const numbers = uses.flatMap(([, , , peer]) => (typeof peer === 'number' ? [peer] : []))
    const peers = new Map((await findPeers(db, meshId, numbers)).map(({ peer, peerKey }) => [peer, peerKey]))
    return {
      quotas: uses.map(([name, used, setting, peer]) => ({
        ...{ name, used, setting, max: this.#maxOf(setting) },
        peerKey: typeof peer === 'number' ? (peers.get(peer) ?? null) : peer,
      })),
    }
  }

  async #meshUses(meshId: MeshId): Promise<Use[]> {
    const { queue, config } = this.#parts
    const measured = await queue.measureMesh(meshId, limitsOf(config).mesh?.countMax ?? ROWS_MAX)
    const [count, bytes] = [largestBy('count', measured), largestBy('bytes', measured)]
    return [
      ['mesh_deliveries', sumOf('count', measured), 'MESH_MAX', null],
      ['mesh_bytes', sumOf('bytes', measured), 'MESH_BYTES_MAX', null],
      ['mesh_sender_deliveries', count.count, 'MESH_PER_SENDER_MAX', count.sender],
      ['mesh_sender_bytes', bytes.bytes, 'MESH_BYTES_PER_SENDER_MAX', bytes.sender],
    ]
  }

  async #mailboxUses(meshId: MeshId): Promise<Use[]> {
    const { queue, census, config } = this.#parts
    const recipients = [...(census.counted.meshes.get(meshId)?.recipients ?? [])]
    const [fullest] = recipients.sort(([, a], [, b]) => b.depth - a.depth)
    const peer = fullest?.[0] ?? null
    const rows = limitsOf(config).mailbox?.countMax ?? ROWS_MAX
    const [measured = []] = peer === null ? [] : await queue.measure([{ meshId, peer }], rows)
    const [count, bytes] = [largestBy('count', measured), largestBy('bytes', measured)]
    return [
      ['mailbox_deliveries', sumOf('count', measured), 'MAILBOX_MAX', peer],
      ['mailbox_bytes', sumOf('bytes', measured), 'MAILBOX_BYTES_MAX', peer],
      ['mailbox_sender_deliveries', count.count, 'MAILBOX_PER_SENDER_MAX', count.sender],
      ['mailbox_sender_bytes', bytes.bytes, 'MAILBOX_BYTES_PER_SENDER_MAX', bytes.sender],
    ]
  }

  #maxOf(setting: Use[2]): number | null {
    const { config } = this.#parts
    const isOff = setting.startsWith('MESH_') && config.MESH_MAX === 0
    const isAlways = ALWAYS.includes(setting)
    return (config.LIMITS === 'off' && !isAlways) || isOff ? null : Number(config[setting])
  }
}

/** The quotas that `LIMITS=off` does not disable. */
const ALWAYS: readonly string[] = [
  'GROUPS_PER_OWNER',
  'POOLS_PER_OWNER',
  'DEAD_LETTERS_PER_SENDER_MAX',
  'DEAD_LETTER_BYTES_PER_SENDER_MAX',
]

const OF_MEMBERS = [
  ['dead_letters', 'DEAD_LETTERS_PER_SENDER_MAX'],
  ['dead_letter_bytes', 'DEAD_LETTER_BYTES_PER_SENDER_MAX'],
  ['groups', 'GROUPS_PER_OWNER'],
  ['pools', 'POOLS_PER_OWNER'],
] as const

function useOf([name, setting]: (typeof OF_MEMBERS)[number], largest: readonly QuotaUse[]): Use {
  const found = largest.find(({ what }) => what === name)
  return [name, found?.used ?? 0, setting, found?.peerKey ?? null]
}

type By = 'count' | 'bytes'
const NOBODY = { sender: null, count: 0, bytes: 0 }

const sumOf = (by: By, measured: readonly Measured[]): number => measured.reduce((sum, one) => sum + one[by], 0)

const largestBy = (by: By, measured: readonly Measured[]): Omit<Measured, 'sender'> & { sender: PeerNo | null } =>
  measured.reduce<Omit<Measured, 'sender'> & { sender: PeerNo | null }>(
    (most, one) => (one[by] > most[by] ? one : most),
    NOBODY,
  )
