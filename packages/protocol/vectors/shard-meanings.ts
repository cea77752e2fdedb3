/** What the fields of the frames of shards mean. */
export const SHARD_MEANINGS = {
  moved: {
    about:
      'In the place of `welcome`: another shard is the home of this mesh. `refused` with `moved` and the close follow. See Shards.',
    fields: {
      url: 'where that shard is dialled: `wss://host[:port]`, or `ws://…`',
      certificate: "of that shard, if its key is not the client's pinned one; empty otherwise",
      proof: 'as in `welcome`: without it the rest is worth nothing',
    },
  },
  certificate: {
    about: 'Before the `hello` of a shard that has a key of its own. See Shards.',
    fields: { certificate: "the cluster's word that the key in `hello` is that of one of its shards" },
  },
  shards: {
    about: 'Where else this mesh can be served. It may follow `welcome`, if there are other shards, or cells.',
    fields: {
      urls: 'as in `moved`; the first is the one that would be its home without this shard',
      cell: 'the public addresses of the cell that serves the mesh; empty with a single cell',
    },
  },
}
