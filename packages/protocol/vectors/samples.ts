/**
 * Defines the samples in `frames.json`: at least one sample of each frame, the ends of its ranges, and inputs that must
 * be refused. Never change an existing vector; add new ones.
 */
import type { DeliveryId, EnvelopeId, GroupId, InviteId, MeshId, PeerKey } from '@sealpost/std'
import type { ClientFrame, Form, Frame, ServerFrame } from '../src/index.ts'
import { keptClientSamples } from './kept-samples.ts'
import { poolClientSamples, poolServerSamples } from './pool-samples.ts'
import { clientUserSamples, serverUserSamples } from './samples-users.ts'
import { shardServerSamples } from './shard-samples.ts'

const count = (length: number, first: number): Uint8Array => Uint8Array.from({ length }, (_, i) => first + i)
const digits = (length: number, first: number): string =>
  [...count(length, first)].map((byte) => byte.toString(16).padStart(2, '0')).join('')

const alice = digits(32, 0x10) as PeerKey
const bob = digits(32, 0x40) as PeerKey
const meshId = digits(16, 0xa0) as MeshId
const first = '019b76da80007000800000000000000a' as EnvelopeId
const second = '019b76da80007000800000000000000b' as EnvelopeId
const none = '00'.repeat(16) as EnvelopeId
const id = (number: number) => number as DeliveryId
const AT_MS = 1_767_225_600_123
const U32_MAX = 0xffffffff

const serverSamples: readonly { name: string; frame: ServerFrame }[] = [
  {
    name: 'hello',
    frame: {
      type: 'hello',
      versions: [1],
      brokerKey: bob,
      connectionId: count(16, 0x20),
      nonce: count(32, 0x80),
      issuedAtMs: AT_MS,
      authWithinMs: 10_000,
    },
  },
  {
    name: 'welcome',
    frame: {
      type: 'welcome',
      proof: count(64, 0),
      epoch: 7,
      incarnation: digits(16, 0xc0),
      durability: 'fsync',
      heartbeatMs: 15_000,
      leaseMs: 30_000,
      dedupeSeconds: 86_400,
      creditMax: 1024,
      envelopeBytesMax: 73_728,
      ttlSecondsMax: 2_592_000,
      inFlightMax: 1024,
    },
  },
  {
    name: 'ack of a new envelope and of a resent one',
    frame: {
      type: 'ack',
      items: [
        { envelopeId: first, isDuplicate: false },
        { envelopeId: second, isDuplicate: true },
      ],
    },
  },
  {
    name: 'nack, retryable and final',
    frame: {
      type: 'nack',
      items: [
        { envelopeId: first, code: 'busy', retryAfterMs: 200 },
        { envelopeId: second, code: 'unknown_recipient', retryAfterMs: 0 },
      ],
    },
  },
  {
    name: 'push of two deliveries',
    frame: {
      type: 'push',
      deliveries: [
        {
          id: id(4_294_967_296),
          envelopeId: first,
          sender: alice,
          priority: 'now',
          attempt: 1,
          enqueuedAtMs: AT_MS,
          envelope: count(40, 0),
        },
        {
          id: id(4_294_967_297),
          envelopeId: second,
          sender: bob,
          priority: 'low',
          attempt: 65_535,
          enqueuedAtMs: 0,
          envelope: count(41, 0xf0),
        },
      ],
    },
  },
  {
    name: 'directory',
    frame: {
      type: 'directory',
      ref: 1,
      bindings: [{ peer: alice, boxKey: count(32, 0x60), boxEpoch: 1, notAfterMs: AT_MS, signature: count(64, 0x90) }],
      unknown: [bob],
    },
  },
  { name: 'directory without entries', frame: { type: 'directory', ref: U32_MAX, bindings: [], unknown: [] } },
  {
    name: 'refused',
    frame: { type: 'refused', code: 'restarting', retryAfterMs: 1500, reason: 'printable ASCII, "quoted" \\ ~' },
  },
  { name: 'goaway', frame: { type: 'goaway', retryAfterMs: U32_MAX } },
  { name: 'pong', frame: { type: 'pong', ref: 0 } },
  { name: 'enrolled', frame: { type: 'enrolled', proof: count(64, 0), name: 'alice' } },
  {
    name: 'roster',
    frame: {
      type: 'roster',
      ref: 1,
      members: [
        { peer: alice, name: 'A "quoted" \\ name', role: 'admin' },
        { peer: bob, name: '', role: 'member' },
      ],
      isLast: false,
    },
  },
  { name: 'roster without members', frame: { type: 'roster', ref: U32_MAX, members: [], isLast: true } },
  { name: 'revoked', frame: { type: 'revoked', ref: 2, outcome: 'done', unknown: [bob] } },
  {
    name: 'recovered',
    frame: {
      type: 'recovered',
      lost: [
        { id: id(7), envelopeId: first, sender: alice, reason: 'expired' },
        { id: id(8), envelopeId: second, sender: bob, reason: 'rejected' },
      ],
      isAll: false,
    },
  },
  { name: 'recovered whole', frame: { type: 'recovered', lost: [], isAll: true } },
  {
    name: 'pushWith',
    frame: {
      type: 'pushWith',
      deliveries: [
        {
          push: {
            id: id(9),
            envelopeId: first,
            sender: alice,
            priority: 'low',
            attempt: 2,
            enqueuedAtMs: AT_MS,
            envelope: count(40, 1),
          },
          terms: { receipts: 'all', thread: digits(16, 0x30), hops: 3, noAutoReply: true },
        },
      ],
    },
  },
  {
    name: 'receipts',
    frame: {
      type: 'receipts',
      items: [
        { id: id(10), envelopeId: first, recipient: bob, event: 'pushed', atMs: AT_MS },
        { id: id(11), envelopeId: first, recipient: bob, event: 'settled', atMs: AT_MS },
        { id: id(12), envelopeId: second, recipient: bob, event: 'struck_out', atMs: 0 },
      ],
    },
  },
  {
    name: 'pushBody',
    frame: {
      type: 'pushBody',
      deliveries: [
        {
          push: {
            id: id(13),
            envelopeId: second,
            sender: bob,
            priority: 'next',
            attempt: 1,
            enqueuedAtMs: AT_MS,
            envelope: count(40, 7),
          },
          terms: { receipts: 'none', thread: '00'.repeat(16), hops: 0, noAutoReply: false },
          body: count(48, 5),
        },
      ],
    },
  },
  {
    name: 'pushEphemeral',
    frame: { type: 'pushEphemeral', items: [{ sender: alice, envelopeId: first, envelope: count(40, 2) }] },
  },
  { name: 'ephemeralFailed', frame: { type: 'ephemeralFailed', items: [{ envelopeId: first, code: 'no_responder' }] } },
  {
    name: 'presence',
    frame: {
      type: 'presence',
      peers: [
        { peer: alice, isOnline: true, availability: 'dnd', summary: 'in a call' },
        { peer: bob, isOnline: false, availability: 'idle', summary: '' },
      ],
      isSnapshot: true,
    },
  },
  { name: 'revoked by no admin', frame: { type: 'revoked', ref: 0, outcome: 'not_admin', unknown: [] } },
  { name: 'groupSet', frame: { type: 'groupSet', ref: 21, outcome: 'done' } },
  { name: 'groupSet, refused', frame: { type: 'groupSet', ref: 22, outcome: 'too_many' } },
  {
    name: 'groupList of two',
    frame: { type: 'groupList', ref: 23, statements: [count(40, 1), count(50, 2)], isLast: false },
  },
  { name: 'groupList, announcement', frame: { type: 'groupList', ref: 0, statements: [], isLast: true } },
  {
    name: 'consented, with an allowed and a blocked peer',
    frame: {
      type: 'consented',
      ref: 31,
      outcome: 'done',
      policy: 'contacts',
      peers: [
        { peer: alice, verdict: 'allowed' },
        { peer: bob, verdict: 'blocked' },
      ],
      unknown: [],
    },
  },
  {
    name: 'consented, for too many, and a stranger',
    frame: { type: 'consented', ref: 32, outcome: 'too_many', policy: 'open', peers: [], unknown: [alice] },
  },
  { name: 'bound', frame: { type: 'bound', ref: 33, outcome: 'done' } },
  { name: 'bound, refused', frame: { type: 'bound', ref: U32_MAX, outcome: 'stale_epoch' } },
  {
    name: 'keyHistory of two bindings',
    frame: {
      type: 'keyHistory',
      ref: 34,
      bindings: [
        { peer: alice, boxKey: count(32, 0x70), boxEpoch: 2, notAfterMs: AT_MS, signature: count(64, 0) },
        { peer: alice, boxKey: count(32, 0x50), boxEpoch: 1, notAfterMs: AT_MS, signature: count(64, 1) },
      ],
    },
  },
  { name: 'keyHistory, empty', frame: { type: 'keyHistory', ref: 35, bindings: [] } },
  { name: 'rebound', frame: { type: 'rebound', peers: [alice, bob] } },
  ...serverUserSamples,
]

export const clientSamples: readonly { name: string; frame: ClientFrame }[] = [
  {
    name: 'auth',
    frame: {
      type: 'auth',
      version: 1,
      meshId,
      peerKey: alice,
      clientNonce: count(32, 0xc0),
      capabilities: ['presence', 'credit'],
      signature: count(64, 0x30),
      credit: 64,
    },
  },
  {
    name: 'send of two envelopes',
    frame: {
      type: 'send',
      envelopes: [
        { envelopeId: first, recipient: bob, priority: 'next', isHead: true, ttlSeconds: 0, envelope: count(40, 0) },
        {
          envelopeId: none,
          recipient: alice,
          priority: 'low',
          isHead: false,
          ttlSeconds: U32_MAX,
          envelope: count(42, 0xfb),
        },
      ],
    },
  },
  { name: 'settle', frame: { type: 'settle', ids: [id(0), id(4_294_967_295), id(Number.MAX_SAFE_INTEGER)] } },
  { name: 'retry', frame: { type: 'retry', items: [{ id: id(12), afterMs: 5000 }] } },
  { name: 'credit', frame: { type: 'credit', credit: 65_535 } },
  { name: 'lookup', frame: { type: 'lookup', ref: 9, peers: [alice, bob] } },
  { name: 'ping', frame: { type: 'ping', ref: 305_419_896 } },
  {
    name: 'enrol',
    frame: {
      type: 'enrol',
      version: 1,
      clientNonce: count(32, 0xc0),
      invite: count(40, 0),
      peerKey: alice,
      name: 'a',
      boxKey: count(32, 0x60),
      boxEpoch: 1,
      bindingNotAfterMs: AT_MS,
      bindingSignature: count(64, 0x90),
      signature: count(64, 0x30),
    },
  },
  { name: 'members', frame: { type: 'members', ref: 3, after: '00'.repeat(32) as PeerKey } },
  {
    name: 'revoke',
    frame: { type: 'revoke', ref: 4, members: [alice, bob], invites: [digits(16, 0x70) as InviteId] },
  },
  { name: 'reject', frame: { type: 'reject', items: [{ id: id(9), reason: 'not for me' }] } },
  { name: 'extend', frame: { type: 'extend', ids: [id(9), id(10)], forMs: 60_000 } },
  { name: 'status', frame: { type: 'status', availability: 'working', summary: 'building', declinesReceipts: false } },
  {
    name: 'sendWith',
    frame: {
      type: 'sendWith',
      envelopes: [
        {
          send: {
            envelopeId: first,
            recipient: bob,
            priority: 'next',
            isHead: true,
            ttlSeconds: 60,
            envelope: count(40, 3),
          },
          terms: {
            notBeforeMs: AT_MS,
            receipts: 'end',
            thread: digits(16, 0x30),
            hops: 65_535,
            noAutoReply: false,
            ifOnline: true,
          },
        },
      ],
    },
  },
  {
    name: 'sendEphemeral',
    frame: { type: 'sendEphemeral', items: [{ envelopeId: first, recipient: bob, envelope: count(40, 4) }] },
  },
  { name: 'watch', frame: { type: 'watch', isOn: true } },
  {
    name: 'broadcast',
    frame: {
      type: 'broadcast',
      group: digits(16, 0x50) as GroupId,
      rosterEpoch: 3,
      bodyId: digits(32, 0x60),
      body: count(48, 5),
      terms: { receipts: 'none', thread: '00'.repeat(16), hops: 0, noAutoReply: false },
      envelopes: [
        { envelopeId: first, recipient: alice, priority: 'next', isHead: true, ttlSeconds: 0, envelope: count(40, 6) },
        { envelopeId: second, recipient: bob, priority: 'next', isHead: true, ttlSeconds: 0, envelope: count(40, 7) },
      ],
    },
  },
  { name: 'setGroup', frame: { type: 'setGroup', ref: 21, statement: count(40, 1) } },
  { name: 'groups', frame: { type: 'groups', ref: 23, after: digits(16, 0x50) as GroupId } },
  {
    name: 'consent, policy and changes',
    frame: {
      type: 'consent',
      ref: 31,
      policy: 'contacts',
      changes: [
        { peer: alice, verdict: 'allowed' },
        { peer: bob, verdict: 'forgotten' },
      ],
    },
  },
  { name: 'consent, asked only', frame: { type: 'consent', ref: 32, policy: 'keep', changes: [] } },
  {
    name: 'bind',
    frame: {
      type: 'bind',
      ref: 33,
      boxKey: count(32, 0x70),
      boxEpoch: 2,
      notAfterMs: AT_MS,
      signature: count(64, 0),
    },
  },
  { name: 'lookupHistory', frame: { type: 'lookupHistory', ref: 34, peer: alice } },
  ...clientUserSamples,
]

export interface RefusedSample {
  readonly name: string
  readonly from: 'client' | 'server'
  readonly form: Form
  readonly text?: string
  readonly hex?: string
  readonly code: 'frame_malformed' | 'wrong_form'
}

const binary = (name: string, hex: string, from: 'client' | 'server' = 'client'): RefusedSample => ({
  name,
  from,
  form: 'binary',
  hex,
  code: 'frame_malformed',
})
const json = (name: string, text: string, from: 'client' | 'server' = 'client'): RefusedSample => ({
  name,
  from,
  form: 'json',
  text,
  code: 'frame_malformed',
})

/** Sizes: id 16, recipient 32, priority 1, isHead 1, ttl 4, length 4, then the envelope. */
const sendItem = (priority: string, isHead: string, length: string, envelope: string) =>
  `${first}${bob}${priority}${isHead}00000000${length}${envelope}`
const push = (envelope: string) =>
  `{"type":"push","deliveries":[{"id":1,"envelopeId":"${first}","sender":"${alice}","priority":"now","attempt":1,` +
  `"enqueuedAtMs":0,"envelope":"${envelope}"}]}`

export const refusedSamples: readonly RefusedSample[] = [
  {
    name: 'text on a binary connection',
    from: 'client',
    form: 'binary',
    text: '{"type":"ping","ref":1}',
    code: 'wrong_form',
  },
  { name: 'bytes on a JSON connection', from: 'client', form: 'json', hex: '1600000001', code: 'wrong_form' },
  binary('nothing', ''),
  binary('a number that no frame has', '0000000001'),
  binary("a server's frame from a client", '0900000001'),
  binary("a client's frame from a server", '1600000001', 'server'),
  binary('cut short', '16000000'),
  binary('a trailing byte', '160000000100'),
  binary('a list without items', '120000'),
  binary('a list of 1001 items', `1203e9${'00'.repeat(8 * 1001)}`),
  binary('a list longer than its items', '1200020000000000000001'),
  binary('an id over 2^53 - 1', '1200010020000000000000'),
  binary('a priority that does not exist', `110001${sendItem('03', '01', '00000028', digits(40, 0))}`),
  binary('a flag of 2', `110001${sendItem('00', '02', '00000028', digits(40, 0))}`),
  binary('an envelope of 39 bytes', `110001${sendItem('00', '01', '00000027', digits(39, 0))}`),
  binary('an envelope of 2^32 - 1 bytes', `110001${sendItem('00', '01', 'ffffffff', digits(40, 0))}`),
  binary('a refusal code that does not exist', '07ff0000000000', 'server'),
  binary('a reason with a line break', '070000000000010a', 'server'),
  binary('an empty name', `0b${digits(64, 0)}00`, 'server'),
  binary('a name of 65 characters', `0b${digits(64, 0)}41${'61'.repeat(65)}`, 'server'),
  json('no JSON', '{'),
  json('an array', '[]'),
  json('null', 'null'),
  json('no type', '{"ref":1}'),
  json('an unknown type', '{"type":"hallo","ref":1}'),
  json('a type in capitals', '{"type":"Ping","ref":1}'),
  json('a type of the prototype', '{"type":"constructor"}'),
  json('a missing key', '{"type":"ping"}'),
  json('a key too many', '{"type":"ping","ref":1,"note":2}'),
  json('__proto__', '{"type":"ping","ref":1,"__proto__":{"ref":1}}'),
  json('__proto__ for a key', '{"type":"ping","__proto__":{"ref":1}}'),
  json('a number as text', '{"type":"ping","ref":"5"}'),
  json('a fraction', '{"type":"ping","ref":5.5}'),
  json('a negative number', '{"type":"ping","ref":-1}'),
  json('minus zero', '{"type":"ping","ref":-0}'),
  json('infinity', '{"type":"ping","ref":1e999}'),
  json('2^32', '{"type":"ping","ref":4294967296}'),
  json('2^53', '{"type":"settle","ids":[9007199254740992]}'),
  json('upper-case hex', `{"type":"lookup","ref":1,"peers":["${bob.toUpperCase()}"]}`),
  json('hex of 31 bytes', `{"type":"lookup","ref":1,"peers":["${bob.slice(2)}"]}`),
  json('half a byte of hex', `{"type":"lookup","ref":1,"peers":["${bob.slice(1)}"]}`),
  json('padded base64url', push(`${'A'.repeat(54)}==`), 'server'),
  json('base64 with a plus', push(`${'A'.repeat(55)}+`), 'server'),
  json('base64url with a space', push(`${'A'.repeat(55)} A`), 'server'),
  json('base64url with trailing bits', push(`${'A'.repeat(53)}B`), 'server'),
  json('base64url of an impossible length', push('A'.repeat(57)), 'server'),
  json('a NUL in a reason', '{"type":"refused","code":"busy","retryAfterMs":0,"reason":"\\u0000"}', 'server'),
  json('a lone surrogate', '{"type":"refused","code":"busy","retryAfterMs":0,"reason":"\\ud800"}', 'server'),
]

export const samples: readonly { name: string; from: 'client' | 'server'; frame: Frame }[] = [
  ...[...serverSamples, ...poolServerSamples, ...shardServerSamples].map((sample) => ({
    from: 'server' as const,
    ...sample,
  })),
  ...[...clientSamples, ...poolClientSamples, ...keptClientSamples].map((sample) => ({
    from: 'client' as const,
    ...sample,
  })),
]
