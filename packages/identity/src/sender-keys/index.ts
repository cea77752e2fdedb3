/** Exports sender keys: forward secrecy of messages to groups. Await `ready()` of this package first. */
export {
  ReceivedSenderKeys,
  type SenderKeyOpening,
  type SenderKeyRecord,
  type SenderKeyRefusal,
} from './received-sender-keys.ts'
export { markSenderKeyEnvelope, senderKeyBox } from './sender-key-envelope.ts'
export { readTicket, type SenderKeyPlace, type SenderKeyScope, type SenderKeyTicket } from './sender-key-ticket.ts'
export {
  type Distribute,
  SENDER_KEY_MS_MAX,
  type SenderCrypto,
  type SenderKeyMessage,
  SenderKeys,
  sodiumSenderCrypto,
} from './sender-keys.ts'
