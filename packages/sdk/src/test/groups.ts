/** Provides tests with the groups of a mesh on fake cryptography, and records their calls. */
import type { GroupStatement } from '@sealpost/identity'
import type { GroupId, MeshId, PeerKey } from '@sealpost/std'
import type { SealpostError } from '../errors.ts'
import { GroupSender, GroupStatements, type MemberOutcome, type MessageRecorder } from '../groups/group-client.ts'
import type { GroupMessage, OutgoingMessage } from '../outbox/lane.ts'
import type { PeerEvent } from '../ports.ts'
import { seenStoreOf } from '../stores/store.ts'
import { fakeGroups } from './fake-groups.ts'

export const groupPeer = (n: number) => n.toString(16).padStart(64, '0') as PeerKey
const MESH = '5e'.repeat(16) as MeshId

export function groupWorld(self = groupPeer(1)) {
  let drawn = 0
  const random = (length: number) => {
    drawn += 1
    return new Uint8Array(length).fill(drawn)
  }
  // Returns a fake hash. The first and last bytes distinguish the bodies in these tests.
  const hash = (bytes: Uint8Array) =>
    Uint8Array.from({ length: 32 }, (_, i) => (i < 16 ? bytes[i]! : bytes.at(i - 32)!) + bytes.length)
  const crypto = fakeGroups({ meshId: MESH, peerKey: self }, random, hash)
  const events: PeerEvent[] = []
  const asked: GroupId[] = []
  const news: GroupId[] = []
  const posts: OutgoingMessage[] = []
  const kept: GroupMessage[] = []
  const statements = new GroupStatements({
    crypto,
    emit: (event) => events.push(event),
    ask: (after) => asked.push(after),
    changed: ({ groupId }) => news.push(groupId),
    seen: seenStoreOf(null),
  })
  const sends = new GroupSender({
    crypto,
    self,
    statements,
    post: (post) => posts.push(post),
    saveOwed: (message) => kept.push({ ...message, owed: new Set(message.owed) }),
    hooks: {},
    endOf: (error) => error,
  })
  const list = (...groups: GroupStatement[]) => statements.listed(groups.map(({ bytes }) => bytes), true) // biome-ignore format: short
  return { crypto, statements, sends, events, asked, news, posts, kept, list }
}

export function sending(
  { sends }: ReturnType<typeof groupWorld>,
  groupId: GroupId,
  said = 'hello',
  recorder?: MessageRecorder,
) {
  const outcomes: MemberOutcome[] = []
  const expected: PeerKey[] = []
  const refused: SealpostError[] = []
  sends.send({
    groupId,
    body: new TextEncoder().encode(said),
    terms: { priority: 'next', ttlSeconds: 0 },
    recorder,
    posted: () => undefined,
    expect: (members) => expected.push(...members),
    ended: (outcome) => outcomes.push(outcome),
    refused: (error) => refused.push(error),
  })
  const fares = () => outcomes.map(({ peer, error }) => [Number.parseInt(peer, 16), error?.code ?? 'stored'])
  return { expected, refused, fares }
}

/** Returns a recorder whose records contain the number of earlier records. */
export function fakeRecorder() {
  const notes: unknown[] = []
  const stored: number[] = []
  const recorder: MessageRecorder = {
    checkNote: () => undefined,
    sealRecord: ({ note }) => {
      notes.push(note)
      return Uint8Array.of(notes.length)
    },
    recorded: ([no]) => void stored.push(no!),
  }
  return { recorder, notes, stored }
}
