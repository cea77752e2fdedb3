/** A group whose members write what happens in it, while others read its pages: all in this process. */
import { clockMs, connect } from '@sealpost/sdk'
import { openState, type State, setSpace } from '@sealpost/sdk/state'
import { Latencies } from './histogram.ts'
import { HttpReader } from './http-reader.ts'
import type { HttpPlace } from './http-sender.ts'
import { identityOf, type Mesh } from './seed.ts'

/** Events of a page. */
export const PAGE = 200

export class Conversation {
  readonly writes = new Latencies()
  readonly reads = new Latencies()
  /** Writes that were refused, and pages that did not come whole. */
  errors = 0
  /** Writes that stand. */
  stored = 0
  readonly #writers: readonly State[]
  readonly #readers: readonly HttpReader[]
  readonly #path: string
  readonly #tampers: string[]
  readonly #underWay = new Set<Promise<void>>()
  #lastSeq = 0
  #number = 0

  /** The first of the mesh own it and write, the last ones read. Two pages are there. */
  static async open(place: HttpPlace, mesh: Mesh, { writers }: { writers: number }): Promise<Conversation> {
    const { meshId } = mesh
    const tampers: string[] = []
    const onEvent = ({ reason }: { reason: string }) => void tampers.push(reason)
    const places = mesh.secrets.map((keys) => ({ ...place, identity: identityOf(keys) }))
    const [owner] = places as [(typeof places)[number]]
    const peer = await connect(owner)
    const { id: group } = await peer.groups.createGroup('conversation', mesh.peerKeys)
    await peer.close()
    await setSpace({ ...owner, group }, { historyFor: 'all' })
    const stateOf = (of: typeof owner) => openState({ ...of, group, onEvent, tendEveryMs: 0 })
    const first = await stateOf(owner) // which makes the keys, for all
    const others = await Promise.all(places.slice(1, writers).map(stateOf))
    const readers = await Promise.all(mesh.secrets.slice(writers).map((keys) => HttpReader.enter(place, keys)))
    const path = `/v1/meshes/${meshId}/history?space=${group}&limit=${PAGE}`
    const conversation = new Conversation({ writers: [first, ...others], readers, path, tampers })
    await Promise.all(Array.from({ length: 2 * PAGE }, (_, turn) => conversation.write(turn, clockMs())))
    return conversation.#begun()
  }

  private constructor(parts: {
    readonly writers: readonly State[]
    readonly readers: readonly HttpReader[]
    readonly path: string
    readonly tampers: string[]
  }) {
    this.#writers = parts.writers
    this.#readers = parts.readers
    this.#path = parts.path
    this.#tampers = parts.tampers
  }

  get readerCount(): number {
    return this.#readers.length
  }

  /** A reaction of whose turn it is, to one of the last messages. */
  write(turn: number, dueAtMs: number): Promise<void> {
    const number = this.#number++
    return this.#begin(async () => {
      const writer = this.#writers[turn % this.#writers.length]!
      const { seq } = await writer.set(`message ${number % PAGE}/reaction ${number}`, '👍')
      this.#lastSeq = Math.max(this.#lastSeq, seq ?? 0)
      this.writes.note(clockMs() - dueAtMs)
      this.stored += 1
    })
  }

  /** The last page. */
  read(turn: number, dueAtMs: number): Promise<void> {
    return this.#begin(async () => {
      const reader = this.#readers[turn % this.#readers.length]!
      const { isWhole } = await reader.read(`${this.#path}&after=${Math.max(0, this.#lastSeq - PAGE)}`)
      if (!isWhole) throw new Error('a page is not whole')
      this.reads.note(clockMs() - dueAtMs)
    })
  }

  /** Resolves when all that was begun is answered. */
  async settled(): Promise<void> {
    await Promise.all(this.#underWay)
  }

  /** How many of the writes a member finds in the history, each opened, in order, with nothing missing between. */
  async count(): Promise<number> {
    const keys = new Set<string>()
    for await (const event of this.#writers.at(-1)!.history())
      if (event.type === 'set' && event.text() === '👍') keys.add(event.key)
    return this.#tampers.length === 0 ? keys.size : 0
  }

  async close(): Promise<void> {
    await Promise.all(this.#writers.map((writer) => writer.close()))
  }

  async #begin(act: () => Promise<void>): Promise<void> {
    const begun = act().catch(() => {
      this.errors += 1
    })
    this.#underWay.add(begun)
    await begun
    this.#underWay.delete(begun)
  }

  /** Without what was written before: it counts as written, and not as measured. */
  #begun(): Conversation {
    const { errors, stored } = this
    const parts = { writers: this.#writers, readers: this.#readers, path: this.#path, tampers: this.#tampers }
    const next = new Conversation(parts)
    next.errors = errors
    next.stored = stored
    next.#lastSeq = this.#lastSeq
    next.#number = this.#number
    return next
  }
}
