/** Keys, the signed handshake and sealed envelopes; the only importer of libsodium. Await `ready()` once, first. */

export {
  type Attachment,
  attachmentHash,
  attachmentText,
  CHUNK_BYTES_MAX,
  CHUNK_BYTES_MIN,
  CHUNK_SEAL_BYTES,
  CHUNKS_MAX,
  ChunkStream,
  chunkLayout,
  isAttachmentName,
  isAttachmentType,
  readAttachment,
} from './attachment.ts'
export { isExposed, isLoopback, normalizeAuthority, portOf } from './authority.ts'
export { concatBytes } from './byte-fields.ts'
export {
  type DeviceRemoval,
  type DeviceStatement,
  type DeviceVoucher,
  isDeviceLabel,
  readDevice,
  readRemoval,
  signDevice,
  signRemoval,
  signVoucher,
} from './device.ts'
export {
  createDeviceInvite,
  type DeviceInvite,
  type DeviceInviteTerms,
  isDeviceInvite,
  readDeviceInvite,
} from './device-invite.ts'
export { type Enrolment, signEnrolment, verifyEnrolment } from './enrolment.ts'
export {
  ENTRY_BYTES_MAX,
  ENTRY_KEY_BYTES_MAX,
  ENTRY_VALUE_BYTES_MAX,
  type EntryDraft,
  type EntryHeader,
  type EntryKeys,
  entryFields,
  isEntryKey,
  NO_ENTRY,
  openEntry,
  readEntry,
  type SignedEntry,
  sealEntry,
} from './entry.ts'
export {
  type EnvelopeDraft,
  type OpenRefusal,
  type OpenResult,
  openEnvelope,
  sealEnvelope,
  sealInStream,
} from './envelope.ts'
export { GRANT_BYTES_MAX, GRANT_KEYS_MAX, type Grant, NO_LINK, openGrant, sealGrant } from './grant.ts'
export {
  changeGroup,
  endGroup,
  foundGroup,
  GROUP_MEMBERS_MAX,
  type Group,
  type GroupStatement,
  groupFields,
  groupIdOf,
  isGroupOver,
  readGroup,
} from './group.ts'
export {
  ENVELOPE_OVERHEAD_BYTES,
  type InnerHeader,
  NO_PREV,
  type StreamId,
  type StreamPosition,
} from './inner-header.ts'
export {
  createInvite,
  type Invite,
  type InviteRole,
  type InviteTerms,
  isDialable,
  parseInvite,
  readInvite,
} from './invite.ts'
export { bindBoxKey, checkKeyBinding, type KeyBinding, type KeyBindingVerdict } from './key-binding.ts'
export * from './keys.ts'
export type { Note } from './note.ts'
export {
  changePool,
  endPool,
  foundPool,
  isPoolOver,
  type Pool,
  type PoolStatement,
  poolIdOf,
  readPool,
} from './pool.ts'
export {
  type OpenRecord,
  openRecord,
  RECORD_BYTES_MAX,
  RECORD_NOTE_BYTES_MAX,
  type RecordDraft,
  type RecordHeader,
  type RecordPlace,
  readRecord,
  recordFields,
  type SignedRecord,
  sealRecord,
} from './record.ts'
export { isRosterName } from './roster-statement.ts'
export { type Correspondent, Sealer } from './sealer.ts'
export {
  checkShardCertificate,
  readShardCertificate,
  readShardCertificateText,
  type ShardCertificate,
  type ShardCertificateTerms,
  type ShardCertificateVerdict,
  shardCertificateText,
  signShardCertificate,
} from './shard-certificate.ts'
export { BODY_OVERHEAD_BYTES, openBody, type SealedBody, sealBody, TICKET_BYTES } from './shared-body.ts'
export { hash256, ready } from './sodium.ts'
export { type HistoryFor, isHistoryFor, readSpace, type Space, type SpaceStatement, signSpace } from './space.ts'
export { KEY_EPOCH_MAX, type KeyPlace, keyHashOf, keyLink, newSpaceKey } from './space-keys.ts'
export { readSuccession, type Succession, signSuccession } from './succession.ts'
export { signTokenRequest, verifyTokenRequest } from './token-request.ts'
export {
  type Role,
  signAsBroker,
  signAsClient,
  type Transcript,
  transcriptBytes,
  verifyBroker,
  verifyClient,
} from './transcript.ts'
