/** What the tests of spaces, entries, records and grants share: one place, two keys, and a byte turned over. */
import type { GroupId } from '@sealpost/std'
import { MESH } from './fixtures.test-kit.ts'

export const SPACE = 'd0d1d2d3d4d5d6d7d8d9dadbdcdddedf' as GroupId
export const PLACE = { meshId: MESH, spaceId: SPACE, keyEpoch: 3 }
export const KEYS = { nameKey: new Uint8Array(32).fill(0x11), spaceKey: new Uint8Array(32).fill(0x22) }

export const text = (bytes: Uint8Array | null | undefined) => bytes && new TextDecoder().decode(bytes)
export const bytes = (said: string): Uint8Array => new TextEncoder().encode(said)
export const flipped = (from: Uint8Array, at: number) => from.map((byte, i) => (i === at ? byte ^ 1 : byte))
