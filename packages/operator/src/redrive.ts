/** Why a dead letter was not put back, on a page and in a terminal. Without the schemas, which a page need not load. */

export const redriveRefusals = {
  unknown: 'no dead letter has this ID',
  not_kept: 'it expired, so its envelope was not kept',
  recipient_revoked: 'its recipient is no longer a member',
  pool_ended: 'its pool was deleted',
  busy: 'another change holds it: try again',
} as const

export type RedriveRefusal = keyof typeof redriveRefusals
