/** Moves a mesh from one cell to another, and finds out which cell it is in. */

export { readStalledMoves, type StalledMoves } from './copy.ts'
export * from './mesh-move.ts'

export type { MeshLocation, MovePhase, MoveRow } from './steps.ts'
