/** Defines the limits of the wire format. An operator may set lower ones, which `welcome` contains. */

/** The size of an empty payload: nonce (24) and authenticator (16). */
export const ENVELOPE_BYTES_MIN = 40
export const ENVELOPE_BYTES_MAX = 128 * 1024
/** The largest body that an SDK seals, which leaves room for header, box and frame. */
export const BODY_BYTES_MAX = 64 * 1024
export const BATCH_MAX = 1000
export const LOOKUP_MAX = 256
/** The maximum number of members in a `roster`, and of keys and invites in a `revoke`. */
export const MEMBER_PAGE_MAX = 256
export const NAME_MAX = 64
/** The maximum number of peers that one peer can allow or block. */
export const CONSENT_MAX = 1000
/** The maximum number of changes in one `consent`. */
export const CONSENT_CHANGES_MAX = 256
/** The maximum number of stored key bindings of one peer, including the current one. */
export const KEY_HISTORY_MAX = 17
/** How long a key binding is valid: a member that was offline for a third of it still receives mail. */
export const BINDING_MS = 90 * 24 * 3600_000
/** A binding with less time left is due for renewal. */
export const BINDING_DUE_MS = BINDING_MS / 3
/** The maximum size of an invite: an address, three keys and a signature. */
export const INVITE_BYTES_MAX = 1024
export const FRAME_BYTES_MAX = 256 * 1024
/**
 * The maximum size of a frame in bytes before the peer is authenticated, and of a JSON frame whose first key is not
 * `type`.
 */
export const UNPROVEN_FRAME_BYTES_MAX = 16 * 1024
/** The maximum nesting of a JSON frame or body. Frames have up to 4 levels. */
export const JSON_DEPTH_MAX = 8
export const FANOUT_MAX = 256
/** The maximum size of a group statement: two ids, two keys, a name, 256 members and a signature. */
export const GROUP_BYTES_MAX = 8448
export const GROUP_PAGE_MAX = 16
/** The size of a record's header. */
export const RECORD_BYTES_MIN = 113
/** The maximum size of a record, header plus value. */
export const RECORD_BYTES_MAX = 2048
/** The maximum number of groups in one mesh, and of ended groups that the broker remembers. */
export const GROUPS_MAX = 1000
export const POOL_MEMBERS_MAX = 64
export const POOLS_MAX = 1000
/** The maximum number of pools that one session can join. */
export const POOL_SEATS_MAX = 64
export const SUMMARY_MAX = 120
export const REASON_MAX = 120
/** The maximum size of a device statement: a mesh id, three keys, a label and three signatures. */
export const DEVICE_BYTES_MAX = 400
export const DEVICE_REMOVAL_BYTES_MAX = 200
/** The maximum number of peers in one `devices`, so that each reply fits in a frame. */
export const USERS_MAX = 16
/** The maximum number of devices and sessions of a user. */
export const DEVICES_MAX = 64
/** The maximum number of statements, and of removals, in one `deviceList`. */
export const DEVICE_PAGE_MAX = 256
export const URL_MAX = 255
/** The maximum size of a certificate: two keys, four authorities and a signature. */
export const CERTIFICATE_BYTES_MAX = 1200
/** The maximum number of shards in one `shards` frame. */
export const SHARDS_TOLD_MAX = 8
/** The maximum size of a succession: a mesh id, two keys and two signatures. */
export const SUCCESSION_BYTES_MAX = 260
/** The size of an empty sealed body: nonce and authenticator. */
export const BODY_SEALED_BYTES_MIN = 40

/** The supported protocol versions, newest first. */
export const PROTOCOL_VERSIONS: readonly number[] = [1]
export const SUBPROTOCOLS = { 'sealpost.v1': 'binary', 'sealpost.v1.json': 'json' } as const
export type Subprotocol = keyof typeof SUBPROTOCOLS
export type Form = (typeof SUBPROTOCOLS)[Subprotocol]

export function chooseSubprotocol(offered: readonly string[]): Subprotocol | undefined {
  return offered.find((name): name is Subprotocol => Object.hasOwn(SUBPROTOCOLS, name))
}
