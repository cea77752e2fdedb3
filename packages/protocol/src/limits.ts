/** What the wire itself bounds. An operator's smaller limits are told in `welcome`. */

/** Nonce (24) and authenticator (16): no envelope is shorter. */
export const ENVELOPE_BYTES_MIN = 40
export const ENVELOPE_BYTES_MAX = 128 * 1024
/** The largest body an SDK seals: header, box and frame fit around it. */
export const BODY_BYTES_MAX = 64 * 1024
/** Items in one frame. */
export const BATCH_MAX = 1000
export const LOOKUP_MAX = 256
/** Members in one `roster`, and of each kind in one `revoke`. */
export const MEMBER_PAGE_MAX = 256
export const NAME_MAX = 64
/** Peers that one peer has allowed or blocked, and of these in one change. */
export const CONSENT_MAX = 1000
export const CONSENT_CHANGES_MAX = 256
/** Key bindings kept of one peer: the current one, and former ones. */
export const KEY_HISTORY_MAX = 17
/** Of an invite; it holds an address, three keys and a signature. */
export const INVITE_BYTES_MAX = 1024
export const FRAME_BYTES_MAX = 256 * 1024
/** Bytes of a frame before a key is proven, and of a JSON frame whose `type` is not its first key. */
export const UNPROVEN_FRAME_BYTES_MAX = 16 * 1024
/** How deep the lists and objects of a JSON frame or body may nest. The deepest frame of the table has 4 levels. */
export const JSON_DEPTH_MAX = 8
/** Envelopes of one broadcast. */
export const FANOUT_MAX = 256
/** Of a group's statement: two ids, two keys, a name, 256 members and a signature. */
export const GROUP_BYTES_MAX = 8448
/** Statements of one `groupList`. */
export const GROUP_PAGE_MAX = 16
/** Of what is kept of a message beside its body: its header, and all of it. */
export const RECORD_BYTES_MIN = 113
export const RECORD_BYTES_MAX = 2048
/** Groups of one mesh; and ended ones of which it is kept that they are. */
export const GROUPS_MAX = 1000
/** Members of a pool. */
export const POOL_MEMBERS_MAX = 64
/** Pools of one mesh. */
export const POOLS_MAX = 1000
/** Pools that one session takes work from. */
export const POOL_SEATS_MAX = 64
/** Characters of what a peer says of itself. */
export const SUMMARY_MAX = 120
/** Characters of why a delivery was rejected. */
export const REASON_MAX = 120
/** Of a device's statement: a mesh, three keys, a label and three signatures. */
export const DEVICE_BYTES_MAX = 400
export const DEVICE_REMOVAL_BYTES_MAX = 200
/** Peers in one `devices`, and the devices that one person may have: so each answer fits a frame. */
export const USERS_MAX = 16
export const DEVICES_MAX = 16
/** Of the address of a shard. */
export const URL_MAX = 255
/** Of a shard's certificate: two keys, four authorities and a signature. */
export const CERTIFICATE_BYTES_MAX = 1200
/** Shards that a peer is told of at a time. */
export const SHARDS_TOLD_MAX = 8
/** Of a succession: a mesh, two keys and two signatures. */
export const SUCCESSION_BYTES_MAX = 260
/** Nonce and MAC of an empty one. */
export const BODY_SEALED_BYTES_MIN = 40
