/** Exports the transparent log of a mesh: its Merkle tree, checkpoints and entries. Await `ready()` of this package first. */
export {
  CHECKPOINT_BYTES,
  type Checkpoint,
  compareCheckpoints,
  isBrokerKey,
  readCheckpoint,
  signCheckpoint,
} from './checkpoint.ts'
export {
  type EntryKind,
  entryKindOf,
  entryLeaf,
  isEntrySigned,
  keyBindingStatement,
  type LogEntry,
  readKeyBindingStatement,
} from './log-entry.ts'
export {
  consistencyRanges,
  inclusionRanges,
  isConsistent,
  LEAVES_MAX,
  type LeafRange,
  leafHash,
  nodePosition,
  perfectRanges,
  rangeHash,
  rootOfInclusion,
  TreeBuilder,
  type TreeHead,
} from './merkle-tree.ts'
