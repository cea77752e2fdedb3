/** For tests: groups of a mesh with cryptography that is none, and whom they tell what. */
import type { GroupStatement } from '@sealpost/identity'
import type { GroupId, MeshId, PeerKey } from '@sealpost/std'
import type { SealpostError } from './errors.ts'
import type { PeerEvent } from './events.ts'
import { fakeGroups } from './fake-groups.ts'
import { GroupBook } from './group-book.ts'
import type { GroupMessage, MessageKeeper } from './group-message.ts'
import { GroupSends, type MemberOutcome } from './group-sends.ts'
import type { Post } from './lane.ts'

export const groupPeer = (n: number) => n.toString(16).padStart(64, '0') as PeerKey
const MESH = '5e'.repeat(16) as MeshId

export function groupWorld(self = groupPeer(1)) {
  let drawn = 0
  const random = (length: number) => {
    drawn += 1
    return new Uint8Array(length).fill(drawn)
  }
  // The first and last bytes are enough to tell test bodies apart.
  const hash = (bytes: Uint8Array) =>
    Uint8Array.from({ length: 32 }, (_, i) => (i < 16 ? bytes[i]! : bytes.at(i - 32)!) + bytes.length)
  const crypto = fakeGroups({ meshId: MESH, peerKey: self }, random, hash)
  const events: PeerEvent[] = []
  const asked: GroupId[] = []
  const news: GroupId[] = []
  const posts: Post[] = []
  const kept: GroupMessage[] = []
  const book = new GroupBook({
    crypto,
    announce: (event) => events.push(event),
    ask: (after) => asked.push(after),
    changed: ({ groupId }) => news.push(groupId),
  })
  const sends = new GroupSends({
    crypto,
    self,
    book,
    post: (post) => posts.push(post),
    keep: (message) => kept.push({ ...message, owed: new Set(message.owed) }),
    endOf: (error) => error,
  })
  /** What the broker answers to the question that is open. */
  const list = (...groups: GroupStatement[]) => book.listed(groups.map(({ bytes }) => bytes), true) // biome-ignore format: short
  return { crypto, book, sends, events, asked, news, posts, kept, list }
}

/** Sends, and gathers what it is told. */
export function sending(
  { sends }: ReturnType<typeof groupWorld>,
  groupId: GroupId,
  said = 'hello',
  keep?: MessageKeeper,
) {
  const outcomes: MemberOutcome[] = []
  const expected: PeerKey[] = []
  const refused: SealpostError[] = []
  sends.send({
    groupId,
    body: new TextEncoder().encode(said),
    terms: { priority: 'next', ttlSeconds: 0 },
    keep,
    posted: () => undefined,
    expect: (members) => expected.push(...members),
    ended: (outcome) => outcomes.push(outcome),
    refused: (error) => refused.push(error),
  })
  const fares = () => outcomes.map(({ peer, error }) => [Number.parseInt(peer, 16), error?.code ?? 'stored'])
  return { expected, refused, fares }
}

/** Records say how many were made. */
export function fakeKeeper() {
  const notes: unknown[] = []
  const stored: number[] = []
  const keep: MessageKeeper = {
    check: () => undefined,
    record: ({ note }) => {
      notes.push(note)
      return Uint8Array.of(notes.length)
    },
    stored: ([no]) => void stored.push(no!),
  }
  return { keep, notes, stored }
}
