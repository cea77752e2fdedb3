/** What each field means, beside the table in `frames.ts`: `docs/PROTOCOL.md` is put together from both. */
import { type Meanings, PERSON_MEANINGS } from './meanings-persons.ts'
import { POOL_MEANINGS } from './pool-meanings.ts'
import { SHARD_MEANINGS } from './shard-meanings.ts'

export const MEANINGS: Meanings = {
  ...PERSON_MEANINGS,
  ...POOL_MEANINGS,
  ...SHARD_MEANINGS,
  hello: {
    about: 'The first frame of every connection.',
    fields: {
      versions: 'protocol versions the broker speaks; the client chooses one',
      brokerKey: "the broker's ed25519 key; a client compares it with the one it has pinned",
      connectionId: 'random, for this connection only; signed',
      nonce: 'random, for this connection only; signed',
      issuedAtMs: "the broker's clock, ms since 1970; signed, and compared with no other clock",
      authWithinMs: 'the connection ends unless the handshake is done by then',
    },
  },
  welcome: {
    about: 'The handshake is done. From here on the session is live.',
    fields: {
      proof: 'the broker\'s signature over T("broker") and the hash of the client\'s signature',
      epoch: "this session's number; it grows with every session of the peer",
      incarnation: 'names the database; another value says that ids and queues may have gone back in time',
      durability: '`fsync`: an ack means committed and synced; `degraded`: the database does not promise that',
      heartbeatMs:
        'after so long without a word the broker pings; three times as long without a sign of life ends the session',
      leaseMs: 'a delivery not settled after this time may be pushed again',
      dedupeSeconds: 'a resend is known this long after its envelope was accepted, and may be stored twice later',
      creditMax: 'unsettled deliveries it pushes at most, whatever credit a session names',
      envelopeBytesMax: 'the largest envelope this broker stores',
      ttlSecondsMax: 'the longest time to live it takes',
      inFlightMax: 'envelopes without an answer, past which it stops reading the connection',
    },
  },
  ack: {
    about: 'These envelopes are committed.',
    fields: {
      items: 'in the order of their commits',
      'items.envelopeId': "the sender's id",
      'items.isDuplicate': 'this id was stored by an earlier `send`; nothing was added',
    },
  },
  nack: {
    about: 'These envelopes were refused. The session goes on.',
    fields: {
      items: 'one for each refused envelope',
      'items.envelopeId': "the sender's id",
      'items.code': 'one of the codes that answer an envelope',
      'items.retryAfterMs': 'for a retryable code: not before; 0 names no time',
    },
  },
  push: {
    about: 'Deliveries for this peer, in the order in which they are to be taken.',
    fields: {
      deliveries: 'the deliveries',
      'deliveries.id': 'what `settle` and `retry` name; it means nothing outside one incarnation',
      'deliveries.envelopeId': "the sender's id",
      'deliveries.sender': 'stamped by the broker, from the handshake of the session that sent it',
      'deliveries.priority': 'as sent',
      'deliveries.attempt': '1 for the first; the last value stands for all above it',
      'deliveries.enqueuedAtMs': "when it was stored, by the database's clock, ms since 1970",
      'deliveries.envelope': 'as sent',
    },
  },
  recovered: {
    about:
      'Follows every `welcome`: what left the queue of this peer unsettled since it was last told. An empty list says that nothing was lost.',
    fields: {
      lost: 'the oldest first; they will not be pushed any more',
      'lost.id': 'the delivery',
      'lost.envelopeId': "the sender's id",
      'lost.sender': 'who sent it',
      'lost.reason':
        '`expired`: its time to live passed; `strikes`: it went to the dead letters after too many failed attempts; `rejected`: this peer rejected it',
      isAll: 'nothing else was lost; otherwise the rest follows the next `welcome`',
    },
  },
  pushWith: {
    about: 'As `push`, for deliveries that were sent with terms. Both keep one common order.',
    fields: {
      deliveries: 'the deliveries',
      'deliveries.push': 'as an item of `push`',
      'deliveries.push.id': 'as there',
      'deliveries.push.envelopeId': 'as there',
      'deliveries.push.sender': 'as there',
      'deliveries.push.priority': 'as there',
      'deliveries.push.attempt': 'as there',
      'deliveries.push.enqueuedAtMs': 'as there',
      'deliveries.push.envelope': 'as there',
      'deliveries.terms':
        'what its sender asked for; the broker reads them, so believe what stands inside the envelope',
      'deliveries.terms.receipts': 'what its sender wants to hear',
      'deliveries.terms.thread': 'the thread; zeros: none',
      'deliveries.terms.hops': 'how often it has passed from peer to peer; a reply counts one more',
      'deliveries.terms.noAutoReply': 'its sender wants no answer that no person wrote',
    },
  },
  receipts: {
    about:
      'What became of envelopes that this peer sent with `receipts`. Each is a delivery: it takes credit, and comes again until it is settled.',
    fields: {
      items: 'one for each event',
      'items.id': 'what `settle` names',
      'items.envelopeId': 'of the envelope this peer sent',
      'items.recipient': 'to whom',
      'items.event':
        '`pushed`: handed to the recipient; `settled`: it is done with it; `expired`, `struck_out`, `rejected`: it went to the dead letters',
      'items.atMs': "when, by the database's clock, ms since 1970",
    },
  },
  pushBody: {
    about: 'As `pushWith`, for deliveries of a broadcast: each with its body.',
    fields: {
      deliveries: 'the deliveries',
      'deliveries.push': 'as an item of `push`; its envelope holds the key to the body, and its hash',
      'deliveries.push.id': 'as there',
      'deliveries.push.envelopeId': 'as there',
      'deliveries.push.sender': 'as there',
      'deliveries.push.priority': 'as there',
      'deliveries.push.attempt': 'as there',
      'deliveries.push.enqueuedAtMs': 'as there',
      'deliveries.push.envelope': 'as there',
      'deliveries.terms': 'as in `pushWith`',
      'deliveries.terms.receipts': 'as there',
      'deliveries.terms.thread': 'as there',
      'deliveries.terms.hops': 'as there',
      'deliveries.terms.noAutoReply': 'as there',
      'deliveries.body': 'as sent, see Groups',
    },
  },
  whispered: {
    about: 'Ephemeral envelopes. There is nothing to settle, and none of them comes again.',
    fields: {
      items: 'in the order in which they came',
      'items.sender': 'stamped by the broker',
      'items.envelopeId': "the sender's id",
      'items.envelope': 'as sent',
    },
  },
  unheard: {
    about: 'Ephemeral envelopes that reached nobody.',
    fields: {
      items: 'one for each',
      'items.envelopeId': "the sender's id",
      'items.code':
        '`no_responder` for a recipient that is offline or not to be disturbed; or a code that answers an envelope',
    },
  },
  presence: {
    about: 'Who is online, for those who `watch`. It is kept in memory and may be late by a moment.',
    fields: {
      peers: 'those that are online, or that changed',
      'peers.peer': 'whose',
      'peers.isOnline': 'has a session',
      'peers.availability': 'as it says of itself',
      'peers.summary': 'as it says of itself',
      isSnapshot: 'the answer to `watch`; otherwise a change',
    },
  },
  reject: {
    about: 'The recipient will not take these, for good: they go to the dead letters.',
    fields: {
      items: 'pushed in this session; others are ignored',
      'items.id': 'the delivery',
      'items.reason': 'for readers of the dead letters; the broker can read it',
    },
  },
  extend: {
    about: 'The recipient is still at work on these: their leases go on.',
    fields: {
      ids: 'pushed in this session; others are ignored',
      forMs: 'from now; at most 4 minutes at a time',
    },
  },
  status: {
    about: 'What this peer says of itself, for as long as its session lasts.',
    fields: {
      availability: '`idle`, `working`, or `dnd`: then only what was sent as `now` is pushed; the rest waits',
      summary: 'shown to those who watch; the broker can read it',
      declinesReceipts: 'its senders are not told that mail was pushed to it or settled',
    },
  },
  sendWith: {
    about: 'As `send`, with terms. Both share the lanes and the order.',
    fields: {
      envelopes: 'stored in this order',
      'envelopes.send': 'as an item of `send`',
      'envelopes.send.envelopeId': 'as there',
      'envelopes.send.recipient': 'as there',
      'envelopes.send.priority': 'as there',
      'envelopes.send.isHead': 'as there',
      'envelopes.send.ttlSeconds': 'as there; counted from when it is stored',
      'envelopes.send.envelope': 'as there',
      'envelopes.terms': 'what is asked for beside',
      'envelopes.terms.notBeforeMs': "kept back until then, by the database's clock, ms since 1970; 0: not kept back",
      'envelopes.terms.receipts': '`none`, `end`: how it ended, `all`: also that it was pushed',
      'envelopes.terms.thread': 'groups what belongs together; each thread has a budget; zeros: none',
      'envelopes.terms.hops': 'one more than what it answers; 0 for a beginning',
      'envelopes.terms.noAutoReply': 'no answer is wanted that no person wrote',
      'envelopes.terms.ifOnline': 'refuse it with `no_responder` when its recipient has no session',
    },
  },
  whisper: {
    about: 'Ephemeral envelopes: handed to a recipient that is online now, or to nobody. Never stored.',
    fields: {
      items: 'passed on in this order',
      'items.envelopeId': 'a UUID v7',
      'items.recipient': 'a member of the same mesh',
      'items.envelope': 'sealed as any other',
    },
  },
  broadcast: {
    about: 'A body for many, stored once, and an envelope for each of them. Each is answered as an item of `send`.',
    fields: {
      group: 'the group it is for; zeros: none',
      rosterEpoch: "of the group's statement by which its members were chosen; the broker refuses an old one",
      bodyId: 'the BLAKE2b-256 of `body`',
      body: 'sealed under a key of its own, see Groups',
      terms: 'as in `sendWith`, for all of them',
      'terms.receipts': 'as there',
      'terms.thread': 'as there',
      'terms.hops': 'as there',
      'terms.noAutoReply': 'as there',
      envelopes: 'as items of `send`, one for each recipient',
      'envelopes.envelopeId': 'as there',
      'envelopes.recipient': 'as there',
      'envelopes.priority': 'as there',
      'envelopes.isHead': 'as there',
      'envelopes.ttlSeconds': 'as there',
      'envelopes.envelope': 'as there',
    },
  },
  broadcastKept: {
    about:
      'As `broadcast`, and kept in the history of its space, in the same commit and once, however often it is said. `not_kept` where no messages are kept.',
    fields: {
      group: 'as there',
      rosterEpoch: 'as there',
      bodyId: 'as there',
      body: 'as there',
      terms: 'as there',
      'terms.receipts': 'as there',
      'terms.thread': 'as there',
      'terms.hops': 'as there',
      'terms.noAutoReply': 'as there',
      envelopes: 'as there',
      'envelopes.envelopeId': 'as there',
      'envelopes.recipient': 'as there',
      'envelopes.priority': 'as there',
      'envelopes.isHead': 'as there',
      'envelopes.ttlSeconds': 'as there',
      'envelopes.envelope': 'as there',
      record: 'see State and history; it names the space, its author is the sender, and its body the one of the frame',
    },
  },
  setGroup: {
    about: 'Founds a group, changes one, or ends it. Answered by `groupSet`, or by nothing while the database is away.',
    fields: { ref: 'any number; the answer says it', statement: 'see Groups' },
  },
  groups: {
    about: 'Asks for the groups of the mesh. Answered by `groupList`, or by nothing, as above.',
    fields: {
      ref: 'any number but 0; the answer says it',
      after: 'those behind this one; zeros: from the first one on',
    },
  },
  groupSet: {
    about: 'The answer to `setGroup` and `setPool`.',
    fields: {
      ref: 'of the question',
      outcome:
        '`done`, also when this very statement stands already; `stale`: one of this epoch or a later one stands; `not_owner`: it is signed by another peer than the one that says it; `malformed`: it is none, or of another mesh; `too_many`: the mesh has 1000 groups, or 1000 pools; `too_many_own`: its owner, with all devices of its person, has as many groups as one may have',
    },
  },
  groupList: {
    about:
      'The answer to `groups` and `pools`, by their ids; and with `ref` 0 the news that a group of the mesh is another one now.',
    fields: {
      ref: 'of the question; 0: nobody asked',
      statements: 'see Groups and Pools; check each',
      isLast: 'nothing comes after these',
    },
  },
  consent: {
    about:
      'Changes whom this peer takes mail from, or only asks. Answered by `consented`, or by nothing while the database is away.',
    fields: {
      ref: 'any number; the answer says it',
      policy: '`keep`: as it is; `open`: from everybody but those blocked; `contacts`: only from those allowed',
      changes: 'all of them are done, or none; of two about one peer the last counts',
      'changes.peer': 'a member of the same mesh; oneself is passed by',
      'changes.verdict': '`forgotten`: neither allowed nor blocked any more',
    },
  },
  bind: {
    about: 'A new key binding in the place of the former one. Answered by `bound`, or by nothing, as above.',
    fields: {
      ref: 'any number; the answer says it',
      boxKey: 'the new X25519 key',
      boxEpoch: 'higher than that of the former binding, and below 2^31',
      notAfterMs: 'as in a `directory`',
      signature: 'see Key binding',
    },
  },
  lookupHistory: {
    about: 'Asks for all key bindings of one peer. Answered by `keyHistory`, or by nothing, as above.',
    fields: { ref: 'any number; the answer says it', peer: 'whose' },
  },
  consented: {
    about: 'The answer to `consent`: how it stands now.',
    fields: {
      ref: 'of the `consent`',
      outcome: '`too_many`: nothing was done, for more than 1000 peers would be allowed or blocked',
      policy: 'as in `consent`',
      peers: 'all that are allowed or blocked, by their keys; also those that were revoked since',
      'peers.peer': 'its key',
      'peers.verdict': '`allowed` or `blocked`',
      unknown: 'those named that were never members',
    },
  },
  bound: {
    about: 'The answer to `bind`.',
    fields: {
      ref: 'of the `bind`',
      outcome:
        '`done`, also when this very key has this epoch already; `stale_epoch`: the epoch is not higher; `bad_binding`: the signature fails, the time has passed, or the epoch is too high',
    },
  },
  keyHistory: {
    about: 'The answer to `lookupHistory`.',
    fields: {
      ref: 'of the `lookupHistory`',
      bindings: 'the current one first, then former ones, newest first; empty for one that is no member',
      'bindings.peer': 'whose',
      'bindings.boxKey': 'as in a `directory`',
      'bindings.boxEpoch': 'as there',
      'bindings.notAfterMs': 'as there',
      'bindings.signature': 'as there',
    },
  },
  rebound: {
    about:
      'These peers have new box keys. It is a hint for those that asked for the former one in this session, or `watch`, and may be lost.',
    fields: { peers: 'whose keys to look up again' },
  },
  watch: {
    about: 'Asks for `presence`: everybody who is online now, then every change.',
    fields: { isOn: 'begin or stop' },
  },
  directory: {
    about: 'The answer to a `lookup`.',
    fields: {
      ref: 'of the `lookup`',
      bindings: 'key bindings of those that are members; the order says nothing',
      'bindings.peer': 'whose',
      'bindings.boxKey': 'its X25519 key',
      'bindings.boxEpoch': 'grows with each rotation',
      'bindings.notAfterMs': 'the binding holds up to and including this time, ms since 1970',
      'bindings.signature': "the peer's, see Key binding",
      unknown: 'those asked for that are no members of the mesh, or revoked',
    },
  },
  refused: {
    about: 'Why the broker ends this connection. The close follows at once.',
    fields: {
      code: 'one of the codes that end a connection',
      retryAfterMs: 'for a retryable code: connect again after this time',
      reason: 'for people; may be empty',
    },
  },
  goaway: {
    about: 'The broker is about to restart: see Going away.',
    fields: { retryAfterMs: 'connect again after this time, once the connection has ended' },
  },
  pong: {
    about: 'The answer to a `ping`. With `ref` 0 the broker sends it unasked, see Liveness.',
    fields: { ref: 'of the `ping`' },
  },
  enrolled: {
    about: 'The answer to `enrol`: the key is a member now, and may connect. The broker closes with 1000.',
    fields: {
      proof: 'the broker\'s signature over T("broker") and the hash of the signature of `enrol`',
      name: 'under which it is a member',
    },
  },
  roster: {
    about: 'The answer to `members`.',
    fields: {
      ref: 'of the `members`',
      members: 'those not revoked, by their keys',
      'members.peer': 'its key',
      'members.name': 'what people call it; empty for none. The broker says so, nobody signed it',
      'members.role': 'an `admin` lets others in by invites, and revokes',
      isLast: 'nobody comes after these',
    },
  },
  revoked: {
    about: 'The answer to a `revoke`.',
    fields: {
      ref: 'of the `revoke`',
      outcome: '`not_admin`: nothing was done, for only an admin may end more than its own membership',
      unknown: 'those named that were never members; the others are revoked',
    },
  },
  auth: {
    about: 'The only frame a client may send before `welcome`, once.',
    fields: {
      version: 'one of `versions` of the `hello`',
      meshId: 'the mesh this session is for',
      peerKey: "the peer's ed25519 key",
      clientNonce: 'random, for this connection only; signed',
      capabilities:
        '`home_unreachable`: not `moved`, see Shards; others mean nothing; 1 to 32 characters each, no space and no comma, or the signature fails',
      signature: 'over T("client"), see Handshake',
      credit: 'as in `credit`',
    },
  },
  send: {
    about: 'Envelopes to store, each answered by one item of an `ack` or `nack`, in no fixed order.',
    fields: {
      envelopes: 'stored in this order',
      'envelopes.envelopeId': 'a UUID v7, made once for each message; a resend says it again',
      'envelopes.recipient': 'a member of the same mesh',
      'envelopes.priority': "orders the recipient's queue, most urgent first",
      'envelopes.isHead': 'nothing before it in its lane is without an answer, see Sending',
      'envelopes.ttlSeconds': "0: the broker's default",
      'envelopes.envelope': 'the sealed envelope; the broker reads nothing of it',
    },
  },
  settle: {
    about: 'The recipient is done with these: they leave the queue.',
    fields: { ids: 'pushed in this session; others are ignored' },
  },
  retry: {
    about: 'The recipient wants these once more.',
    fields: {
      items: 'pushed in this session; others are ignored',
      'items.id': 'the delivery',
      'items.afterMs': 'not before, as long as this session lasts',
    },
  },
  credit: {
    about: 'How much the recipient takes at once.',
    fields: { credit: 'deliveries pushed and not settled, at most; 0: none' },
  },
  lookup: {
    about: 'Asks for box keys. Answered by `directory`, or by nothing while the database is away.',
    fields: { ref: 'any number; the answer says it', peers: 'whose' },
  },
  ping: {
    about:
      'Asks for a `pong`, which is sent when everything that this session settled, rejected or gave back before is ' +
      'committed, 2 seconds later at most. A client that closes waits for it, so that its next session is not given ' +
      'again what it settled.',
    fields: { ref: 'any number; the `pong` repeats it' },
  },
  enrol: {
    about: 'In the place of `auth`, to become a member by an invite. Answered by `enrolled`, or refused.',
    fields: {
      version: 'one of `versions` of the `hello`',
      clientNonce: 'random, for this connection only; signed',
      invite: 'its bytes, see Invites',
      peerKey: 'the ed25519 key that becomes a member',
      name: 'what people shall call it, see Names; nobody else in the mesh may have it, in capitals or not',
      boxKey: 'the first X25519 key of the new member',
      boxEpoch: 'of its key binding',
      bindingNotAfterMs: 'of its key binding',
      bindingSignature: 'of its key binding, which is checked',
      signature: 'over T("enrol"), see Enrolment',
    },
  },
  members: {
    about:
      'Asks who belongs to the mesh, a page at a time. Answered by `roster`, or by nothing while the database is away.',
    fields: {
      ref: 'any number; the answer says it',
      after: 'only members whose keys come after this one; zeros for the first page',
    },
  },
  revoke: {
    about: 'Ends memberships and invites. Answered by `revoked`, or by nothing while the database is away.',
    fields: {
      ref: 'any number; the answer says it',
      members: 'keys that are to be members no more',
      invites: 'ids of invites that are to let nobody in any more, used before or not',
    },
  },
}
