/** Which shard is the home of a mesh: the same answer on every shard that knows the same names, without asking anybody. */
import type { MeshId } from '@sealpost/std'

/**
 * The name of the shard where the peers of a mesh should be: `pin` if that shard lives, else the name that scores highest
 * with the mesh (rendezvous hashing: a shard that comes or goes moves only the meshes it gains or loses). The order
 * of the names does not matter. Nothing if there are no names. Placement only saves work, so its hash withstands no attack:
 * who makes many meshes may choose ids that share a home, and a pin takes them apart.
 */
export function homeOf(meshId: MeshId, shardNames: Iterable<string>, pin?: string): string | undefined {
  const meshHash = absorb(0, meshId)
  let home: string | undefined
  let highest = -1
  for (const name of shardNames) {
    if (name === pin) return name
    const score = mix(absorb(meshHash, name))
    if (score < highest || (score === highest && home !== undefined && home <= name)) continue
    home = name
    highest = score
  }
  return home
}

/** The steps of MurmurHash3 (public domain), a block for each UTF-16 unit: `Math.imul` is the same on every platform. */
function absorb(seed: number, text: string): number {
  let hash = seed
  for (let at = 0; at < text.length; at++) {
    const block = Math.imul(rotate(Math.imul(text.charCodeAt(at), 0xcc9e2d51), 15), 0x1b873593)
    hash = (Math.imul(rotate(hash ^ block, 13), 5) + 0xe6546b64) | 0
  }
  return hash ^ text.length
}

/** Its finalizer: each bit of the result depends on every bit of the hash. */
function mix(hash: number): number {
  let mixed = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35)
  return (mixed ^ (mixed >>> 16)) >>> 0
}

function rotate(bits: number, by: number): number {
  return (bits << by) | (bits >>> (32 - by))
}
