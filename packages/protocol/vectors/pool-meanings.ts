/** What the fields of the frames of pools mean. */
export const POOL_MEANINGS = {
  setPool: {
    about: 'Founds a pool, or changes one. Answered by `groupSet`, or by nothing while the database is away.',
    fields: { ref: 'repeated in the answer', statement: 'of the pool, see Pools' },
  },
  pools: {
    about:
      'Asks for the pools of this mesh, by their ids. Answered by `groupList`, or by nothing while the database is away.',
    fields: { ref: 'repeated in the answer, not 0', after: 'the last id of the page before; zeros for the first' },
  },
  joinPool: {
    about:
      'From now on this session takes work of the pool. Said again it changes the credit. Answered by `poolJoined`, or by nothing while the database is away.',
    fields: {
      ref: 'repeated in the answer',
      pool: 'the pool',
      credit:
        'unsettled deliveries of this pool at a time; 0: it leaves, and what it holds goes to another member at once',
    },
  },
  poolJoined: {
    about:
      'The answer to `joinPool`. With `ref` 0 the broker says by itself that the session takes no work of this pool any more.',
    fields: {
      ref: 'of the `joinPool`',
      pool: 'the pool',
      outcome:
        '`not_in_pool`: the owner has not named this peer; `too_many`: the session takes work of as many pools as it may',
    },
  },
  sendPool: {
    about:
      'A message to a pool: stored once, and given to one member at a time. Answered by one item of an `ack` or `nack`.',
    fields: {
      rosterEpoch:
        "the pool's epoch by whose members it was sealed; an older one is refused as `stale_roster`. 0: whatever it is",
      bodyId: 'BLAKE2b-256 of `body`, different for each message',
      body: 'sealed once, see Pools',
      terms: 'as in `sendWith`; `ifOnline` asks for nothing here',
      'terms.notBeforeMs': 'as there',
      'terms.receipts': 'as there',
      'terms.thread': 'as there',
      'terms.hops': 'as there',
      'terms.noAutoReply': 'as there',
      'terms.ifOnline': 'as there',
      send: 'as an item of `send`; the recipient is the pool, and the envelope has a box for each member, see Pools',
      'send.envelopeId': 'as there',
      'send.recipient': 'the id of the pool',
      'send.priority': 'as there',
      'send.isHead': 'as there',
      'send.ttlSeconds': 'as there',
      'send.envelope': 'the boxes',
    },
  },
}
