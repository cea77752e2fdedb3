/** Describes each frame and field of `frames.ts`, for the tables of `docs/PROTOCOL.md`. */
import { type Meanings, USER_MEANINGS } from './meanings-users.ts'
import { POOL_MEANINGS } from './pool-meanings.ts'
import { SHARD_MEANINGS } from './shard-meanings.ts'

export const MEANINGS: Meanings = {
  ...USER_MEANINGS,
  ...POOL_MEANINGS,
  ...SHARD_MEANINGS,
  hello: {
    about: 'The first frame of every connection.',
    fields: {
      versions: 'protocol versions that the broker supports; the client chooses one',
      brokerKey: "the broker's ed25519 key; a client compares it with its pinned key",
      connectionId: 'random, for this connection only; signed',
      nonce: 'random, for this connection only; signed',
      issuedAtMs: "the broker's clock, ms since 1970; signed, but not compared with any other clock",
      authWithinMs: 'time limit for the handshake; the connection ends when this time passes',
    },
  },
  welcome: {
    about: 'Completes the handshake. The connection is live from here on.',
    fields: {
      proof: 'the broker\'s signature over T("broker") and the hash of the client\'s signature',
      epoch: 'number of this connection; higher than for every earlier connection of the peer',
      incarnation:
        'identifies the state of the database; a different value means that ids and queues may have been reset to an earlier state',
      durability:
        '`fsync`: an ack means that the envelope is committed and synced to disk; `degraded`: the database does not guarantee this',
      heartbeatMs:
        'after this time without a frame from the client, the broker sends a ping; after three times this time without a frame or pong, the broker ends the connection',
      leaseMs: 'a delivery that is not settled within this time may be pushed again',
      dedupeSeconds:
        'how long the broker recognizes a resend, counted from the time at which it accepted the envelope; an envelope that is resent later may be stored twice',
      creditMax: 'the maximum number of pushed, unsettled deliveries, even if the client grants more credit',
      envelopeBytesMax: 'the largest envelope that this broker stores',
      ttlSecondsMax: 'the longest time to live that this broker accepts',
      inFlightMax: 'the number of unacknowledged envelopes above which the broker stops reading the connection',
    },
  },
  ack: {
    about: 'Reports that the broker has committed envelopes.',
    fields: {
      items: 'in commit order',
      'items.envelopeId': "the sender's id",
      'items.isDuplicate': 'an earlier `send` stored this id; nothing was added',
    },
  },
  nack: {
    about: 'Reports that the broker refused envelopes. The connection stays open.',
    fields: {
      items: 'one item per refused envelope',
      'items.envelopeId': "the sender's id",
      'items.code': 'a code without a close number',
      'items.retryAfterMs': 'for a retryable code: wait at least this long; 0: unspecified',
    },
  },
  push: {
    about: 'Pushes deliveries to this peer, in the order in which to process them.',
    fields: {
      deliveries: 'the deliveries',
      'deliveries.id': 'the id for `settle` and `retry`; valid only within one incarnation',
      'deliveries.envelopeId': "the sender's id",
      'deliveries.sender': 'set by the broker, from the handshake of the connection that sent the envelope',
      'deliveries.priority': 'as sent',
      'deliveries.attempt': '1 for the first push; increases by one with each push, up to 65535',
      'deliveries.enqueuedAtMs': "when the delivery was stored, according to the database's clock, ms since 1970",
      'deliveries.envelope': 'as sent',
    },
  },
  recovered: {
    about:
      "Follows every `welcome` and lists the deliveries that left this peer's queue unsettled since the last `recovered`. An empty list means that nothing was lost.",
    fields: {
      lost: 'oldest first; these deliveries are not pushed again',
      'lost.id': 'the delivery',
      'lost.envelopeId': "the sender's id",
      'lost.sender': 'who sent it',
      'lost.reason':
        '`expired`: the time to live passed; `strikes`: too many failed attempts; `rejected`: this peer rejected the delivery',
      isAll: 'set: the list is complete; unset: the rest follows after the next `welcome`',
    },
  },
  pushWith: {
    about: 'Like `push`, for deliveries that were sent with terms. The deliveries of both frames form one sequence.',
    fields: {
      deliveries: 'the deliveries',
      'deliveries.push': 'like an item of `push`',
      'deliveries.push.id': 'as in `push`',
      'deliveries.push.envelopeId': 'as in `push`',
      'deliveries.push.sender': 'as in `push`',
      'deliveries.push.priority': 'as in `push`',
      'deliveries.push.attempt': 'as in `push`',
      'deliveries.push.enqueuedAtMs': 'as in `push`',
      'deliveries.push.envelope': 'as in `push`',
      'deliveries.terms':
        'the terms that the sender set; the broker can read and change them, so trust only data inside the envelope',
      'deliveries.terms.receipts': 'the receipts that the sender requested',
      'deliveries.terms.thread': 'the thread; all zeros: none',
      'deliveries.terms.hops': 'the number of messages that precede this one in a chain of replies; a reply adds one',
      'deliveries.terms.noAutoReply': 'set: recipients should not reply automatically',
    },
  },
  receipts: {
    about:
      'Reports what happened to envelopes that this peer sent with `receipts`. Each receipt is a delivery: it uses credit, and is redelivered until it is settled.',
    fields: {
      items: 'one item per event',
      'items.id': 'the id for `settle`',
      'items.envelopeId': 'the id of the envelope that this peer sent',
      'items.recipient': 'the recipient of the envelope',
      'items.event':
        '`pushed`: pushed to the recipient; `settled`: settled by the recipient; `expired`, `struck_out` (too many failed attempts), `rejected`: became a dead letter',
      'items.atMs': "time of the event, according to the database's clock, ms since 1970",
    },
  },
  pushBody: {
    about: 'Like `pushWith`, but for deliveries with a shared body (broadcasts and pool messages).',
    fields: {
      deliveries: 'the deliveries',
      'deliveries.push': 'like an item of `push`; its envelope contains the key and the hash of the body',
      'deliveries.push.id': 'as in `push`',
      'deliveries.push.envelopeId': 'as in `push`',
      'deliveries.push.sender': 'as in `push`',
      'deliveries.push.priority': 'as in `push`',
      'deliveries.push.attempt': 'as in `push`',
      'deliveries.push.enqueuedAtMs': 'as in `push`',
      'deliveries.push.envelope': 'as in `push`',
      'deliveries.terms': 'as in `pushWith`',
      'deliveries.terms.receipts': 'as in `pushWith`',
      'deliveries.terms.thread': 'as in `pushWith`',
      'deliveries.terms.hops': 'as in `pushWith`',
      'deliveries.terms.noAutoReply': 'as in `pushWith`',
      'deliveries.body': 'as sent; see Groups',
    },
  },
  pushEphemeral: {
    about: 'Pushes ephemeral messages to this peer. Ephemeral messages are not settled and not redelivered.',
    fields: {
      items: 'in the order of arrival',
      'items.sender': 'set by the broker',
      'items.envelopeId': "the sender's id",
      'items.envelope': 'as sent',
    },
  },
  ephemeralFailed: {
    about: 'Reports ephemeral messages that did not reach their recipient.',
    fields: {
      items: 'one item per message',
      'items.envelopeId': "the sender's id",
      'items.code':
        '`no_responder` if the recipient is offline or has the status `dnd`; otherwise a code without a close number',
    },
  },
  presence: {
    about:
      'Reports who is online, to peers that sent `watch`. Presence is not stored, so a report can be slightly out of date.',
    fields: {
      peers: 'in a snapshot, the peers that are online; in a change, the peers whose presence changed',
      'peers.peer': 'the peer',
      'peers.isOnline': 'whether it is connected',
      'peers.availability': 'as set by its `status`',
      'peers.summary': 'as set by its `status`',
      isSnapshot: 'set in the reply to `watch`; unset for a change',
    },
  },
  reject: {
    about: 'Refuses deliveries permanently, so they become dead letters.',
    fields: {
      items: 'deliveries that were pushed on this connection; the broker ignores other ids',
      'items.id': 'the delivery',
      'items.reason': 'stored with the dead letter; the broker can read it',
    },
  },
  extend: {
    about: 'Extends the leases of deliveries that the recipient is still processing.',
    fields: {
      ids: 'deliveries that were pushed on this connection; the broker ignores other ids',
      forMs:
        'new lease duration, counted from now; at most 4 minutes at a time; 0: the deliveries are not being processed',
    },
  },
  status: {
    about: 'Sets the status of this peer until its connection ends.',
    fields: {
      availability: 'with `dnd`, the broker pushes only deliveries with priority `now`, and other deliveries wait',
      summary: 'shown to peers that `watch`; the broker can read it',
      declinesReceipts: 'set: senders get neither `pushed` nor `settled` receipts for deliveries to this peer',
    },
  },
  sendWith: {
    about: 'Like `send`, with terms. The envelopes of both frames share lanes and order.',
    fields: {
      envelopes: 'stored in this order',
      'envelopes.send': 'like an item of `send`',
      'envelopes.send.envelopeId': 'as in `send`',
      'envelopes.send.recipient': 'as in `send`',
      'envelopes.send.priority': 'as in `send`',
      'envelopes.send.isHead': 'as in `send`',
      'envelopes.send.ttlSeconds': 'as in `send`; counted from the time when the envelope is stored',
      'envelopes.send.envelope': 'as in `send`',
      'envelopes.terms': 'options for the delivery',
      'envelopes.terms.notBeforeMs':
        "do not deliver before this time, according to the database's clock, ms since 1970; 0: deliver at once",
      'envelopes.terms.receipts': '`none`; `end`: report how the delivery ended; `all`: also report that it was pushed',
      'envelopes.terms.thread':
        'identifies a thread of related messages, which share a budget of envelopes; all zeros: no thread',
      'envelopes.terms.hops':
        'the `hops` of the message that this message replies to, plus one; 0 if this message is not a reply',
      'envelopes.terms.noAutoReply': 'set: recipients should not reply automatically',
      'envelopes.terms.ifOnline': 'refuse the envelope with `no_responder` if the recipient is not connected',
    },
  },
  sendEphemeral: {
    about:
      'Sends ephemeral messages. The broker pushes them to the recipient if the recipient is online, and never stores them.',
    fields: {
      items: 'forwarded in this order',
      'items.envelopeId': 'a UUID v7',
      'items.recipient': 'a member of the same mesh',
      'items.envelope': 'sealed like any other envelope',
    },
  },
  broadcast: {
    about:
      'Sends one body to many recipients. The broker stores the body once, and stores an envelope for each recipient. It acknowledges each envelope like an item of `send`.',
    fields: {
      group: 'the group that the message is sent to; all zeros: none',
      rosterEpoch:
        "epoch of the group statement that lists the recipients; the broker refuses an epoch older than the group's",
      bodyId: 'the BLAKE2b-256 of `body`',
      body: 'sealed with a separate key; see Groups',
      terms: 'as in `sendWith`; they apply to all envelopes',
      'terms.receipts': 'as in `sendWith`',
      'terms.thread': 'as in `sendWith`',
      'terms.hops': 'as in `sendWith`',
      'terms.noAutoReply': 'as in `sendWith`',
      envelopes: 'one per recipient, each like an item of `send`',
      'envelopes.envelopeId': 'as in `send`',
      'envelopes.recipient': 'as in `send`',
      'envelopes.priority': 'as in `send`',
      'envelopes.isHead': 'as in `send`',
      'envelopes.ttlSeconds': 'as in `send`',
      'envelopes.envelope': 'as in `send`',
    },
  },
  broadcastKept: {
    about:
      'Like `broadcast`, but the message is also stored in the history of its space, in the same commit and only once, even if the frame is resent. The code `not_kept` means that the space does not store messages.',
    fields: {
      group: 'as in `broadcast`',
      rosterEpoch: 'as in `broadcast`',
      bodyId: 'as in `broadcast`',
      body: 'as in `broadcast`',
      terms: 'as in `broadcast`',
      'terms.receipts': 'as in `broadcast`',
      'terms.thread': 'as in `broadcast`',
      'terms.hops': 'as in `broadcast`',
      'terms.noAutoReply': 'as in `broadcast`',
      envelopes: 'as in `broadcast`',
      'envelopes.envelopeId': 'as in `broadcast`',
      'envelopes.recipient': 'as in `broadcast`',
      'envelopes.priority': 'as in `broadcast`',
      'envelopes.isHead': 'as in `broadcast`',
      'envelopes.ttlSeconds': 'as in `broadcast`',
      'envelopes.envelope': 'as in `broadcast`',
      record:
        'see State and history; it names the space, its author is the sender, and its body id is the `bodyId` of the frame',
    },
  },
  setGroup: {
    about:
      'Creates, changes or ends a group. The broker replies with `groupSet`; while the database is unavailable, it sends no reply.',
    fields: { ref: 'any number; repeated in the reply', statement: 'see Groups' },
  },
  groups: {
    about:
      'Lists the groups of the mesh. The broker replies with `groupList`; while the database is unavailable, it sends no reply.',
    fields: {
      ref: 'any number except 0; repeated in the reply',
      after: 'start after this id; all zeros: start at the first group',
    },
  },
  groupSet: {
    about: 'The reply to `setGroup` and `setPool`.',
    fields: {
      ref: 'from the request',
      outcome:
        '`done`: stored, now or earlier; `stale`: a different statement with this epoch or a later one is stored; `not_owner`: the signer is not the peer that sent the request; `malformed`: not a valid statement, or a statement for another mesh; `too_many`: the mesh has 1000 groups, or 1000 pools; `too_many_own`: the owner, with all devices of its user, has reached its limit',
    },
  },
  groupList: {
    about:
      'The reply to `groups` and `pools`, ordered by id. With `ref` 0, announces that a group of the mesh has changed.',
    fields: {
      ref: 'from the request; 0: an announcement',
      statements: 'see Groups and Pools; verify each',
      isLast: 'the last page',
    },
  },
  consent: {
    about:
      'Changes which peers this peer accepts messages from; an empty frame only requests the current state. The broker replies with `consented`; while the database is unavailable, it sends no reply.',
    fields: {
      ref: 'any number; repeated in the reply',
      policy:
        '`keep`: no change; `open`: accept from all peers except blocked ones; `contacts`: accept only from allowed peers',
      changes: 'all are applied or none; if two changes name the same peer, the last one applies',
      'changes.peer': 'a member of the same mesh; the sender itself is ignored',
      'changes.verdict': '`forgotten`: no longer allowed or blocked',
    },
  },
  consented: {
    about: 'The reply to `consent`, with the current state.',
    fields: {
      ref: 'from the `consent`',
      outcome: '`too_many`: nothing was changed, because more than 1000 peers would be allowed or blocked',
      policy: 'as in `consent`',
      peers: 'all allowed and blocked peers, ordered by key; includes peers that were revoked later',
      'peers.peer': 'its key',
      'peers.verdict': '`allowed` or `blocked`',
      unknown: 'peers in the `consent` that were never members',
    },
  },
  watch: {
    about:
      'Starts or stops `presence` frames. The broker first sends a snapshot of the online peers (at most one snapshot every two seconds), then every change. Peers that are connected to other brokers may be missing from the snapshot; the broker then reports them as changes.',
    fields: { isOn: 'start or stop' },
  },
  directory: {
    about: 'The reply to a `lookup`; or, after `welcome`, the own binding of a peer that should extend it.',
    fields: {
      ref: 'from the `lookup`; 0 for the own binding',
      bindings: 'key bindings of the requested peers that are members, in no defined order',
      'bindings.peer': 'the peer',
      'bindings.boxKey': "the peer's X25519 key",
      'bindings.boxEpoch': 'higher after each rotation',
      'bindings.notAfterMs': 'the binding is valid up to and including this time, ms since 1970',
      'bindings.signature': "the peer's signature; see Key binding",
      unknown: 'requested peers that are not members of the mesh, or are revoked',
    },
  },
  refused: {
    about: 'Reports why the broker ends this connection. The broker then closes the connection at once.',
    fields: {
      code: 'one of the codes that end a connection',
      retryAfterMs: 'for a retryable code: connect again after this time',
      reason: 'for a human reader; may be empty',
    },
  },
  goaway: {
    about: 'Announces that the broker is about to restart; see Going away.',
    fields: { retryAfterMs: 'connect again this long after the connection has ended' },
  },
  pong: {
    about: 'The reply to a `ping`. The broker sends it with `ref` 0 on its own initiative; see Liveness.',
    fields: { ref: 'from the `ping`' },
  },
  enrolled: {
    about: 'The reply to `enrol`. The new member can now connect. The broker closes this connection with 1000.',
    fields: {
      proof: 'the broker\'s signature over T("broker") and the hash of the `signature` in `enrol`',
      name: "the member's name",
    },
  },
  roster: {
    about: 'The reply to `members`.',
    fields: {
      ref: 'from the `members`',
      members: 'members that are not revoked, ordered by key',
      'members.peer': 'its key',
      'members.name': 'display name; empty: none. Set by the broker and not signed',
      'members.role': 'an `admin` can invite and revoke members',
      isLast: 'the last page',
    },
  },
  revoked: {
    about: 'The reply to a `revoke`.',
    fields: {
      ref: 'from the `revoke`',
      outcome: '`not_admin`: nothing was done, because only an admin can revoke other members',
      unknown: 'peers in the `revoke` that were never members; the others are revoked',
    },
  },
  auth: {
    about: 'The only frame that a client may send before `welcome`, once.',
    fields: {
      version: 'one of `versions` of the `hello`',
      meshId: 'the mesh to connect to',
      peerKey: "the peer's ed25519 key",
      clientNonce: 'random, for this connection only; signed',
      capabilities:
        '`home_unreachable` asks the broker not to redirect the client with `moved`, see Shards; the broker ignores other values. If a value is not 1 to 32 characters long, or contains a space or a comma, the signature is invalid',
      signature: 'over T("client"); see Handshake',
      credit: 'as in `credit`',
    },
  },
  send: {
    about:
      'Sends envelopes to store. The broker acknowledges each envelope with one item of an `ack` or `nack`, in any order.',
    fields: {
      envelopes: 'stored in this order',
      'envelopes.envelopeId': 'a UUID v7, created once for each message; a resend repeats it',
      'envelopes.recipient': 'a member of the same mesh',
      'envelopes.priority': "the recipient's queue is ordered by priority, most urgent first",
      'envelopes.isHead': 'set: every earlier envelope of this lane is acknowledged or refused; see Sending',
      'envelopes.ttlSeconds': "0: the broker's default",
      'envelopes.envelope': 'the sealed envelope; opaque to the broker',
    },
  },
  settle: {
    about: 'Settles deliveries, which then leave the queue.',
    fields: { ids: 'deliveries that were pushed on this connection; the broker ignores other ids' },
  },
  retry: {
    about: 'Returns deliveries to the queue, to be pushed again.',
    fields: {
      items: 'deliveries that were pushed on this connection; the broker ignores other ids',
      'items.id': 'the delivery',
      'items.afterMs': 'the minimum delay before the next push; applies only while this connection is open',
    },
  },
  credit: {
    about: 'Sets how many deliveries the recipient accepts at a time.',
    fields: { credit: 'the maximum number of pushed, unsettled deliveries; 0: none' },
  },
  lookup: {
    about:
      'Requests box keys. The broker replies with `directory`; while the database is unavailable, it sends no reply.',
    fields: { ref: 'any number; repeated in the reply', peers: 'the peers to look up' },
  },
  ping: {
    about:
      'Requests a `pong`. The broker sends the `pong` when all earlier settles, rejects and retries of this connection are committed, or after 2 seconds at most. A client waits for the `pong` before it closes the connection, so that its next connection does not receive deliveries that it has settled.',
    fields: { ref: 'any number; repeated in the `pong`' },
  },
  enrol: {
    about: 'Sent instead of `auth` to become a member with an invite. The broker replies with `enrolled` or `refused`.',
    fields: {
      version: 'one of `versions` of the `hello`',
      clientNonce: 'random, for this connection only; signed',
      invite: 'the bytes of the invite; see Invites',
      peerKey: 'the ed25519 key that becomes a member',
      name: 'display name, unique in the mesh regardless of case; see Names',
      boxKey: 'the first X25519 key of the new member',
      boxEpoch: 'from its key binding',
      bindingNotAfterMs: 'from its key binding',
      bindingSignature: 'from its key binding; the broker verifies it',
      signature: 'over T("enrol"); see Enrolment',
    },
  },
  members: {
    about:
      'Lists the members of the mesh, one page at a time. The broker replies with `roster`; while the database is unavailable, it sends no reply.',
    fields: {
      ref: 'any number; repeated in the reply',
      after: 'start after this key; all zeros: the first page',
    },
  },
  revoke: {
    about:
      'Ends memberships and invites. The broker replies with `revoked`; while the database is unavailable, it sends no reply.',
    fields: {
      ref: 'any number; repeated in the reply',
      members: 'keys of the members to revoke',
      invites: 'ids of invites to revoke, even if they were already used',
    },
  },
}
