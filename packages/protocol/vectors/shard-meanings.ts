/** Describes the shard frames and their fields. */
export const SHARD_MEANINGS = {
  moved: {
    about:
      'Sent instead of `welcome` if another shard is the home of this mesh. `refused` with `moved` and the close follow; see Shards.',
    fields: {
      url: 'the address of the home shard: `wss://host[:port]`, or `ws://…`',
      certificate: "the certificate of the home shard, if its key differs from the cluster's; empty otherwise",
      proof: "as in `welcome`; a client that can't verify the proof stops",
    },
  },
  certificate: {
    about: 'Precedes the `hello` of a shard with its own key; see Shards.',
    fields: { certificate: "the cluster's signed statement that the key in `hello` belongs to one of its shards" },
  },
  shards: {
    about: 'Lists other shards that can serve this mesh. It may follow `welcome` if there are other shards or cells.',
    fields: {
      urls: 'addresses in the form that `moved` uses; the first shard would become the home of the mesh if this shard failed',
      cell: 'the public addresses of the cell that serves the mesh; empty if there is only one cell',
    },
  },
}
