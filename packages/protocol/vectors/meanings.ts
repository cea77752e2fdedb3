/** What each field means, beside the table in `frames.ts`: `docs/PROTOCOL.md` is put together from both. */
export const MEANINGS: Readonly<Record<string, { about: string; fields: Readonly<Record<string, string>> }>> = {
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
      heartbeatMs: 'the broker pings this often; three times as long without a sign of life ends the session',
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
  pong: { about: 'The answer to a `ping`.', fields: { ref: 'of the `ping`' } },
  auth: {
    about: 'The only frame a client may send before `welcome`, once.',
    fields: {
      version: 'one of `versions` of the `hello`',
      meshId: 'the mesh this session is for',
      peerKey: "the peer's ed25519 key",
      clientNonce: 'random, for this connection only; signed',
      capabilities: 'none is defined; 1 to 32 characters each, no space and no comma, or the signature fails',
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
  ping: { about: 'Asks for a `pong`.', fields: { ref: 'any number; the answer says it' } },
}
