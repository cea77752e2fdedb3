/** Tests that a peer follows a certified successor only as decision 16 allows, whatever a broker shows and in which order. */
import {
  identityFromSeeds,
  readRecovery,
  ready,
  signHeirs,
  signIdentityRotation,
  signRecovery,
} from '@sealpost/identity'
import { type MeshId, type Millis, type PeerKey, seededRandom } from '@sealpost/std'
import { pick } from '@sealpost/std/testing'
import { beforeAll, expect, test } from 'vitest'
import type { StoreRecord } from '../stores/records.ts'
import { RecoveryBook, type RecoveryEvent, type StatementRow } from './recovery-book.ts'

const MESH = 'a0'.repeat(16) as MeshId
const DAY_MS = 86_400_000
const SEEDS = 40
const STEPS = 12

const keysOf = (n: number) =>
  identityFromSeeds({ signing: new Uint8Array(32).fill(n), box: new Uint8Array(32).fill(n + 100) }).signing

let alice: PeerKey
let rows: StatementRow[]

beforeAll(async () => {
  await ready()
  const user = keysOf(1)
  alice = user.publicKey
  const devices = [2, 3].map(keysOf)
  const naming = (epoch: number, named: typeof devices) =>
    signHeirs(user, { meshId: MESH, epoch, heirs: named.map(({ publicKey }) => ({ device: publicKey, label: 'x' })) })
  const heirs = [naming(1, devices), naming(2, devices.slice(0, 1)), naming(3, [])]
  const recoveries = [0, 1].flatMap((n) =>
    [0, 1].flatMap((heir) =>
      n === 1 && heir === 1
        ? []
        : [4, 5].map((next) =>
            signRecovery({ heir: devices[heir]!, successor: keysOf(next) }, { heirs: heirs[n]!, atMs: 1 }),
          ),
    ),
  )
  const rotations = [6, 7].map((next) =>
    signIdentityRotation({ former: user, successor: keysOf(next) }, { meshId: MESH, atMs: 1 }),
  )
  rows = [
    ...heirs.map((bytes) => ({ kind: 'heirs', bytes }) as const),
    ...recoveries.flatMap((bytes) => [
      { kind: 'recovery', bytes } as const,
      { kind: 'pending_recovery', bytes } as const,
    ]),
    ...rotations.map((bytes) => ({ kind: 'succession', bytes }) as const),
  ]
})

/** A peer that can restart: its book is rebuilt from the records that it has stored. */
class Peer {
  readonly events: RecoveryEvent[] = []
  readonly #records = new Map<string, StoreRecord>()
  nowMs: Millis = 0
  book = this.restart()

  restart(): RecoveryBook {
    this.book = new RecoveryBook(
      {
        ...{ meshId: MESH, self: 'ff'.repeat(32) as PeerKey, nowMs: () => this.nowMs, isVerified: () => false },
        emit: (event) => void this.events.push(event),
        keep: (key, record) => void (record ? this.#records.set(key, record) : this.#records.delete(key)),
      },
      [...this.#records.values()],
    )
    return this.book
  }
}

test(`over ${SEEDS} seeds, a peer waits for seven days, refuses outdated heirs, and keeps the first successor`, () => {
  let followed = 0
  for (let seed = 0; seed < SEEDS; seed++) {
    const random = seededRandom(seed)
    const peer = new Peer()
    const seenAtMs = new Map<PeerKey, Millis>()
    let newest = 0
    let first: PeerKey | null = null
    for (let step = 0; step < STEPS; step++) {
      peer.nowMs += pick(random, [1, 3, 8]) * DAY_MS
      if (random.chance(0.2)) peer.restart()
      const shown = [pick(random, rows), pick(random, rows)]
      const before = peer.book.successorOf(alice)
      peer.book.take(shown)
      const after = peer.book.successorOf(alice)
      if (first !== null) expect(after).toBe(first) // the first successor counts for good
      first ??= after
      newest = Math.max(newest, peer.book.heirsOf(alice)?.epoch ?? 0)
      const known = peer.book.find(alice)
      if (!known || before !== null) continue
      const { epoch } = readRecovery(peer.book.bytesOf(alice)!)!
      expect(epoch).toBe(newest) // no heir of an older list
      if (seenAtMs.get(known.successor) === undefined) seenAtMs.set(known.successor, peer.nowMs)
      if (known.state !== 'followed') continue
      followed += 1
      expect(peer.nowMs - seenAtMs.get(known.successor)!).toBeGreaterThanOrEqual(7 * DAY_MS)
      expect(shown.some(({ kind }) => kind === 'recovery')).toBe(true)
    }
  }
  expect(followed).toBeGreaterThan(SEEDS / 20) // the run covers recoveries that are followed
})

test('entries of the log object to a recovery, and older heir statements among them report nothing', () => {
  const peer = new Peer()
  const [first, second, third] = rows.filter(({ kind }) => kind === 'heirs') as [
    StatementRow,
    StatementRow,
    StatementRow,
  ]
  peer.book.take([
    second,
    rows.find(({ kind, bytes }) => kind === 'pending_recovery' && readRecovery(bytes)?.epoch === 2)!,
  ])
  peer.book.takeLogged([first, second])
  expect(peer.book.find(alice)?.state).toBe('pending')
  peer.book.takeLogged([first, second, third])
  expect(peer.book.find(alice)).toBeNull()
  expect(peer.events.map(({ type }) => type)).toEqual(['recovery_pending', 'recovery_cancelled'])
})
