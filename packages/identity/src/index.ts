/** Keys, the signed handshake and sealed envelopes; the only importer of libsodium. Await `ready()` once, first. */
export { concatBytes } from './byte-fields.ts'
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
} from './envelope/attachment.ts'
export {
  type EnvelopeDraft,
  type OpenRefusal,
  type OpenResult,
  openEnvelope,
  type SealedEnvelope,
  sealEnvelope,
  sealInStream,
} from './envelope/envelope.ts'
export {
  ENVELOPE_OVERHEAD_BYTES,
  type InnerHeader,
  NO_PREV,
  type StreamId,
  type StreamPosition,
} from './envelope/inner-header.ts'
export type { Note } from './envelope/note.ts'
export { type Correspondent, Sealer } from './envelope/sealer.ts'
export { BODY_OVERHEAD_BYTES, openBody, type SealedBody, sealBody, TICKET_BYTES } from './envelope/shared-body.ts'
export {
  checkShardCertificate,
  readShardCertificate,
  readShardCertificateText,
  type ShardCertificate,
  type ShardCertificateTerms,
  type ShardCertificateVerdict,
  shardCertificateText,
  signShardCertificate,
} from './handshake/shard-certificate.ts'
export {
  type EnrolmentFields,
  isExposed,
  isLoopback,
  normalizeAuthority,
  portOf,
  signAsBroker,
  signAsClient,
  signEnrolment,
  signTokenRequest,
  type Transcript,
  type TranscriptRole,
  transcriptBytes,
  verifyBroker,
  verifyClient,
  verifyEnrolment,
  verifyTokenRequest,
} from './handshake/transcript.ts'
export {
  type IdentityRotation,
  readIdentityRotation,
  signIdentityRotation,
} from './keys/identity-rotation.ts'
export { bindBoxKey, checkKeyBinding, type KeyBinding, type KeyBindingVerdict } from './keys/key-binding.ts'
export * from './keys/keys.ts'
export {
  createDeviceInvite,
  type DeviceInvite,
  type DeviceInviteTerms,
  type DeviceRemoval,
  type DeviceStatement,
  type DeviceVoucher,
  isDeviceInvite,
  isDeviceLabel,
  readDevice,
  readDeviceInvite,
  readRemoval,
  signDevice,
  signRemoval,
  signVoucher,
} from './members/device.ts'
export {
  changeGroup,
  createGroup,
  endGroup,
  GROUP_MEMBERS_MAX,
  type GroupFields,
  type GroupStatement,
  groupFields,
  groupIdOf,
  isGroupEnded,
  isMemberListName,
  readGroup,
} from './members/group.ts'
export {
  createInvite,
  type Invite,
  type InviteRole,
  type InviteTerms,
  isDialable,
  parseInvite,
  readInvite,
} from './members/invite.ts'
export {
  changePool,
  createPool,
  endPool,
  isPoolEnded,
  type PoolFields,
  type PoolStatement,
  poolIdOf,
  readPool,
} from './members/pool.ts'
export { hash256, ready } from './sodium.ts'
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
} from './spaces/entry.ts'
export {
  GRANT_BYTES_MAX,
  GRANT_KEYS_MAX,
  KEY_EPOCH_MAX,
  type KeyGrant,
  type KeyScope,
  keyHashOf,
  keyLink,
  NO_LINK,
  newSpaceKey,
  openGrant,
  sealGrant,
} from './spaces/grant.ts'
export {
  type OpenRecord,
  openRecord,
  RECORD_BYTES_MAX,
  RECORD_NOTE_BYTES_MAX,
  type RecordDraft,
  type RecordHeader,
  type RecordPosition,
  readRecord,
  recordFields,
  type SignedRecord,
  sealRecord,
} from './spaces/record.ts'
export {
  type HistoryAudience,
  isHistoryAudience,
  readSpace,
  type SpaceFields,
  type SpaceStatement,
  signSpace,
} from './spaces/space.ts'
