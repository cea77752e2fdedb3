/** Exports ratchets: forward secrecy between two peers. Await `ready()` of this package first. */
export { type AgreementRefusal, INITIATION_BYTES_MAX, type RatchetScope, type RatchetSuite } from './agreement.ts'
export {
  type OneTimePrekey,
  type PrekeyBundle,
  type PrekeyStatement,
  Prekeys,
  type PrekeyVerdict,
  readPrekeyStatement,
  type SpentPrekey,
} from './prekeys.ts'
export {
  Ratchet,
  type RatchetNews,
  type RatchetOpening,
  type RatchetParties,
  type RatchetPlace,
  type RatchetRecord,
  type RatchetRefusal,
} from './ratchet.ts'
export { type RatchetCrypto, sodiumRatchetCrypto } from './ratchet-crypto.ts'
export { RATCHET_OVERHEAD_BYTES } from './ratchet-header.ts'
export {
  openRatcheted,
  type RatchetedOpening,
  sealRatcheted,
} from './ratcheted-envelope.ts'
