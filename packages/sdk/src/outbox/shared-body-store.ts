/** Bodies of group messages as a store keeps them: each once, as long as an envelope of it waits or a member is owed it. */
import { concatBytes, TICKET_BYTES } from '@sealpost/identity'
import type { GroupMessage } from '../groups/group-message.ts'
import type { SharedBodyRecord, StoreRecord } from '../stores/store.ts'
import type { StoreWriter } from '../stores/store-writer.ts'

export class SharedBodyStore {
  readonly #writer: StoreWriter
  /** What a former life left, by the ids of the bodies: one object for all who know a message. */
  readonly restored = new Map<string, GroupMessage>()
  /** How many posts need each. */
  readonly #posts = new Map<string, number>()

  constructor(writer: StoreWriter) {
    this.#writer = writer
  }

  /** Takes up what a former life left; its posts are to be adopted. */
  restore(records: readonly StoreRecord[]): void {
    for (const record of records) if (record.kind === 'group') this.restored.set(record.bodyId, messageOf(record))
  }

  hold(message: GroupMessage): void {
    this.adopt(message)
    if (this.#posts.get(message.bodyId) === 1) this.keep(message)
  }

  /** The same for one that is kept already. */
  adopt({ bodyId }: GroupMessage): void {
    this.#posts.set(bodyId, (this.#posts.get(bodyId) ?? 0) + 1)
  }

  release(message: GroupMessage): void {
    const count = this.#posts.get(message.bodyId)! - 1
    if (count > 0) this.#posts.set(message.bodyId, count)
    else {
      this.#posts.delete(message.bodyId)
      this.keep(message)
    }
  }

  /** As it is now, or no longer when nobody needs it. */
  keep(message: GroupMessage): void {
    const key = `group ${message.bodyId}`
    if (this.#posts.has(message.bodyId) || message.owed.size > 0) this.#writer.put(key, () => recordOf(message))
    else this.#writer.remove(key)
  }
}

function recordOf({
  groupId,
  epoch,
  bodyId,
  terms,
  isSecond,
  owed,
  ticket,
  record,
  bytes,
}: GroupMessage): SharedBodyRecord {
  const facts = { groupId, epoch, bodyId, terms: said(terms), isSecond, owed: [...owed] }
  const whole = concatBytes(record ? [ticket, record, bytes] : [ticket, bytes])
  return { kind: 'group', ...facts, recordBytes: record?.length ?? 0, bytes: whole }
}

/** A store may keep it as JSON, where what is undefined is left out. */
const said = <T extends object>(terms: T): T =>
  Object.fromEntries(Object.entries(terms).filter(([, value]) => value !== undefined)) as T

function messageOf({ kind: _, owed, recordBytes = 0, bytes, ...facts }: SharedBodyRecord): GroupMessage {
  const bodyAt = TICKET_BYTES + recordBytes
  const record = recordBytes > 0 ? bytes.slice(TICKET_BYTES, bodyAt) : undefined
  const parts = { ticket: bytes.slice(0, TICKET_BYTES), record, bytes: bytes.slice(bodyAt) }
  return { ...facts, ...parts, members: [], owed: new Set(owed) }
}
