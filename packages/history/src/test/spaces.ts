/** Provides tests with a mesh and its members in a separate database, with a broker's privileges. */
import { createHash } from 'node:crypto'
import { type Database, openDatabase, openPipeline, type Pipeline } from '@sealpost/pg'
import { unhurried } from '@sealpost/pg/testing'
import { scratchDatabase } from '@sealpost/schema/testing'
import { loginsOf } from '@sealpost/schema/testing-roles'
import { fromHex, type GroupId, type MeshId, type PeerKey, type PeerNo, type SpaceId, toHex } from '@sealpost/std'
import { addMembers, createMesh, putGroup } from '@sealpost/store'
import { type EntryLimits, type EntryWrite, EntryWriter } from '../entry-writer.ts'
import { type SpaceDefinition, Spaces } from '../spaces.ts'

export const MESH = '1a'.repeat(16) as MeshId
export const GROUP = '2a'.repeat(16) as GroupId
export const peerKeyOf = (n: number) => n.toString(16).padStart(64, '0') as PeerKey

/** Returns bytes that the database accepts as a group statement, because they contain the members' keys. */
const rosterOf = (...members: readonly number[]) =>
  new Uint8Array(Buffer.concat(members.map((n) => fromHex(peerKeyOf(n)))))

const ample: EntryLimits = { entriesMax: 1_000_000, spaceBytesMax: 2 ** 40, meshBytesMax: 2 ** 40 }

export const termsOf = (changes: Partial<SpaceDefinition> = {}): SpaceDefinition => ({
  meshId: MESH,
  spaceId: MESH,
  epoch: 1,
  historyFor: 'all',
  keepsMessages: true,
  keepSeconds: 86_400,
  keepBytes: 2 ** 30,
  statement: Uint8Array.of(changes.epoch ?? 1),
  ...changes,
})

export class SpaceStage {
  readonly admin: Database
  readonly asking: Database
  readonly pipelines: readonly [Pipeline, Pipeline]
  readonly url: string
  /** An admin and the group's owner. Cat is not in the group. */
  readonly ann: PeerNo
  readonly bob: PeerNo
  readonly cat: PeerNo
  readonly spaces: Spaces
  readonly #end: () => Promise<void>

  private constructor(
    parts: Pick<SpaceStage, 'admin' | 'asking' | 'pipelines' | 'url'>,
    members: readonly PeerNo[],
    end: () => Promise<void>,
  ) {
    this.admin = parts.admin
    this.asking = parts.asking
    this.pipelines = parts.pipelines
    this.url = parts.url
    const [ann, bob, cat] = members as [PeerNo, PeerNo, PeerNo]
    this.ann = ann
    this.bob = bob
    this.cat = cat
    this.spaces = new Spaces(parts.asking)
    this.#end = end
  }

  static async open(): Promise<SpaceStage> {
    const scratch = await scratchDatabase()
    const logins = await loginsOf(scratch.url)
    const options = { ...unhurried, connections: 2 }
    const admin = await openDatabase(scratch.url, options)
    const asking = await openDatabase(logins.broker, options)
    const pipeline = () => openPipeline(logins.broker, { ...options, connections: 1 })
    const pipelines = [await pipeline(), await pipeline()] as const
    await createMesh(admin, { meshId: MESH, name: 'home' })
    const members = await addMembers(admin, MESH, [1, 2, 3].map(bindingOf))
    await admin.run((sql) => sql`update member set role = 'admin' where peer_no = ${members[0]!}`)
    const stage = new SpaceStage({ admin, asking, pipelines, url: scratch.url }, members, async () => {
      await Promise.all([admin, asking, ...pipelines].map((db) => db.close()))
      await logins.drop()
      await scratch.drop()
    })
    await stage.setGroup(1, 1, 2)
    return stage
  }

  asker(peer: PeerNo) {
    return { meshId: MESH, peer }
  }

  async setGroup(epoch: number, ...members: readonly number[]): Promise<void> {
    const group = { groupId: GROUP, epoch, statement: rosterOf(...members) }
    const outcome = await putGroup(this.admin, { meshId: MESH, peer: this.ann }, group)
    if (outcome !== 'done') throw new Error(`the group was answered ${outcome}`)
  }

  async found(changes: Partial<SpaceDefinition> = {}): Promise<void> {
    const outcome = await this.spaces.put(this.asker(this.ann), termsOf(changes))
    if (outcome !== 'done') throw new Error(`the space was answered ${outcome}`)
    await this.admin.run(
      (sql) => sql`update space set key_epoch = 1 where space_id = ${changes.spaceId ?? MESH}::uuid and key_epoch = 0`,
    )
  }

  async addMembers(count: number): Promise<void> {
    await addMembers(
      this.admin,
      MESH,
      Array.from({ length: count }, (_, n) => bindingOf(n + 4)),
    )
  }

  writer(shard: 0 | 1 = 0, limits: Partial<EntryLimits> = {}): EntryWriter {
    return new EntryWriter(this.pipelines[shard], { ...ample, ...limits })
  }

  /** Returns an entry from Ann in the mesh's space. */
  entry(
    key: string,
    revision: number,
    changes: Partial<EntryWrite> & { text?: string; former?: EntryWrite } = {},
  ): EntryWrite {
    const { text = `${key} ${revision}`, former, ...rest } = changes
    const bytes = new TextEncoder().encode(text)
    return {
      meshId: MESH,
      spaceId: MESH as SpaceId,
      keyHash: hashOf(key),
      revision,
      formerHash: former?.hash ?? '0'.repeat(64),
      hash: hashOf(text),
      author: this.ann,
      isDeleted: false,
      keyEpoch: 1,
      bytes,
      ...rest,
    }
  }

  events(space: string = MESH) {
    return this.admin.run(
      (sql) => sql<{ seq: number; at: number; kind: number; text: string }[]>`
        select seq, (extract(epoch from at) * 1000000)::float8 as at, kind, convert_from(record, 'utf8') as text
        from history_event where mesh_id = ${MESH}::uuid and space_id = ${space}::uuid order by seq`,
    )
  }

  close(): Promise<void> {
    return this.#end()
  }
}

const hashOf = (text: string): string => toHex(createHash('sha256').update(text).digest())

const bindingOf = (n: number) => ({
  peerKey: peerKeyOf(n),
  boxKey: new Uint8Array(32),
  boxEpoch: 1,
  notAfterMs: 1_900_000_000_000,
  signature: new Uint8Array(64),
  name: `peer ${n}`,
})
