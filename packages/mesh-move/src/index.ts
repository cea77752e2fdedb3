/** Moves a mesh from one cell to another, and finds out which cell it is in. */
export * from './cells.ts'
export * from './mesh-move.ts'
export { readStalledMoves, type StalledMoves } from './move-connection.ts'
export type { MeshLocation, MovePhase, MoveRow } from './steps.ts'
