/**
 * Where peers are: which mesh each belongs to, and to which broker it connects. Like the plan it is computed from a few
 * numbers, so that no part of a run is told about the others.
 */
export interface Spread {
  /** Peers write to others of their mesh only; each mesh has an even share of them. */
  readonly meshes: number
  /** Postgres servers; a mesh is in one of them. */
  readonly cells: number
  /** Brokers of each cell. */
  readonly shards: number
  /** The share of a mesh's peers that sit on another shard than most of it would: 0 none, 1 all of them. */
  readonly cross: number
}

export const ALONE: Spread = { meshes: 1, cells: 1, shards: 1, cross: 0 }

interface Crowd {
  readonly peers: number
  readonly spread: Spread
}

/** Its peers follow each other: the number of the first. */
export const firstOf = ({ peers, spread }: Crowd, mesh: number): number => Math.floor((mesh * peers) / spread.meshes)

export const meshOf = ({ peers, spread }: Crowd, peer: number): number =>
  Math.floor(((peer + 1) * spread.meshes - 1) / peers)

/** Meshes take the cells in turns. */
export const cellOf = ({ cells }: Spread, mesh: number): number => mesh % cells

/** The broker a peer connects to, counted through all cells. Meshes take the shards of their cell in turns. */
export function shardOf(crowd: Crowd, peer: number): number {
  const { cells, shards, cross } = crowd.spread
  const mesh = meshOf(crowd, peer)
  const usual = Math.floor(mesh / cells) % shards
  const place = peer - firstOf(crowd, mesh)
  const away = Math.floor(place * cross) // of those before it; evenly among them
  const isAway = shards > 1 && Math.floor((place + 1) * cross) > away
  const shard = isAway ? (usual + 1 + (away % (shards - 1))) % shards : usual
  return cellOf(crowd.spread, mesh) * shards + shard
}
