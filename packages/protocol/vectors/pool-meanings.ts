/** Describes the pool frames and their fields. */
export const POOL_MEANINGS = {
  setPool: {
    about:
      'Creates, changes or ends a pool. The broker replies with `groupSet`; while the database is unavailable, it sends no reply.',
    fields: { ref: 'repeated in the reply', statement: "the pool's statement; see Pools" },
  },
  pools: {
    about:
      'Lists the pools of this mesh, ordered by id. The broker replies with `groupList`; while the database is unavailable, it sends no reply.',
    fields: {
      ref: 'any number except 0; repeated in the reply',
      after: 'the last id of the previous page; all zeros: the first page',
    },
  },
  joinPool: {
    about:
      'Joins this connection to the pool, so that it receives messages from the pool. Sending the frame again changes the credit. The broker replies with `poolJoined`; while the database is unavailable, it sends no reply.',
    fields: {
      ref: 'repeated in the reply',
      pool: 'the pool',
      credit:
        'the maximum number of unsettled deliveries of this pool; 0: leave the pool, and release unsettled deliveries to other members at once',
    },
  },
  poolJoined: {
    about:
      'The reply to `joinPool`. With `ref` 0, announces that this connection no longer receives messages from the pool.',
    fields: {
      ref: 'from the `joinPool`',
      pool: 'the pool',
      outcome:
        "`not_in_pool`: the owner's statement does not list this peer; `too_many`: the connection has joined the maximum number of pools",
    },
  },
  sendPool: {
    about:
      'Sends a message to a pool. The broker stores the message once, pushes it to one member at a time, and acknowledges it with one item of an `ack` or `nack`.',
    fields: {
      rosterEpoch:
        'epoch of the pool statement that lists the members the message was sealed for; an older epoch is refused with `stale_roster`; 0: not checked',
      bodyId: 'the BLAKE2b-256 of `body`; unique to each message',
      body: 'sealed once; see Pools',
      terms: 'as in `sendWith`; `ifOnline` has no effect',
      'terms.notBeforeMs': 'as in `sendWith`',
      'terms.receipts': 'as in `sendWith`',
      'terms.thread': 'as in `sendWith`',
      'terms.hops': 'as in `sendWith`',
      'terms.noAutoReply': 'as in `sendWith`',
      'terms.ifOnline': 'as in `sendWith`',
      send: 'like an item of `send`; the recipient is the pool, and the envelope contains a box for each member; see Pools',
      'send.envelopeId': 'as in `send`',
      'send.recipient': 'the id of the pool',
      'send.priority': 'as in `send`',
      'send.isHead': 'as in `send`',
      'send.ttlSeconds': 'as in `send`',
      'send.envelope': 'the boxes',
    },
  },
}
