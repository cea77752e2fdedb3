/** Keys, the signed handshake and sealed envelopes; the only importer of libsodium. Await `ready()` once, first. */
export { normalizeAuthority } from './authority.ts'
export {
  type EnvelopeDraft,
  type OpenRefusal,
  type OpenResult,
  openEnvelope,
  sealEnvelope,
  sealInStream,
} from './envelope.ts'
export {
  ENVELOPE_OVERHEAD_BYTES,
  type InnerHeader,
  NO_PREV,
  type StreamId,
  type StreamPosition,
} from './inner-header.ts'
export { bindBoxKey, checkKeyBinding, type KeyBinding, type KeyBindingVerdict } from './key-binding.ts'
export * from './keys.ts'
export { type Correspondent, Sealer } from './sealer.ts'
export { hash256, ready } from './sodium.ts'
export {
  type Role,
  signAsBroker,
  signAsClient,
  type Transcript,
  transcriptBytes,
  verifyBroker,
  verifyClient,
} from './transcript.ts'
