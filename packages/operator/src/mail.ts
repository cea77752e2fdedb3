/** What left its queue unsettled, and what operators changed. */
import { z } from 'zod'
import { type RedriveRefusal, redriveRefusals } from './texts.ts'

const instantMs = z.number().describe('milliseconds since 1970')

export const DeadLetterReport = z.object({
  id: z.int(),
  meshId: z.string(),
  meshName: z.string(),
  envelopeId: z.string(),
  sender: z.string(),
  senderName: z.string().nullable(),
  recipient: z.string(),
  recipientName: z.string().nullable(),
  priority: z.enum(['now', 'next', 'low']),
  reason: z.string(),
  detail: z.string().nullable().describe('what its recipient said when it rejected it'),
  attempts: z.int(),
  strikes: z.int(),
  enqueuedAtMs: instantMs,
  diedAtMs: instantMs,
  bytes: z.int().nullable().describe('of the sealed envelope; null: it was not kept, and can not be put back'),
})
export type DeadLetterReport = z.output<typeof DeadLetterReport>

export const DeadLetters = z.object({ deadLetters: z.array(DeadLetterReport) })
export type DeadLetters = z.output<typeof DeadLetters>

export const DEAD_LETTER_IDS_MAX = 1000

/** Which ones: those named, or all that the rest of it leaves. */
const chosen = {
  ids: z.array(z.int().min(0)).min(1).max(DEAD_LETTER_IDS_MAX).optional(),
  all: z.literal(true).optional(),
  meshId: z
    .string()
    .regex(/^[0-9a-f]{32}$/)
    .optional(),
  recipient: z
    .string()
    .regex(/^[0-9a-f]{64}$/)
    .optional(),
  reason: z.enum(['expired', 'strikes', 'rejected']).optional(),
  olderThanSeconds: z
    .int()
    .min(0)
    .max(2 ** 31 - 1)
    .optional(),
}
const SAYS_WHICH = 'either `ids` or `all`'
const saysWhich = ({ ids, all }: { ids?: number[] | undefined; all?: true | undefined }) =>
  (ids === undefined) !== (all === undefined)

export const Purge = z.strictObject(chosen).refine(saysWhich, SAYS_WHICH)
export type Purge = z.output<typeof Purge>
export const Redrive = z
  .strictObject({
    ...chosen,
    ttlSeconds: z
      .int()
      .min(1)
      .max(2 ** 31 - 1)
      .default(14 * 86_400),
  })
  .refine(saysWhich, SAYS_WHICH)
export type Redrive = z.output<typeof Redrive>

const reasons = Object.keys(redriveRefusals) as RedriveRefusal[]
const meanings = reasons.map((reason) => `\`${reason}\`: ${redriveRefusals[reason]}`).join('; ')

export const RedriveReport = z.object({
  redriven: z.int(),
  left: z.int().describe('still dead letters'),
  refused: z
    .array(z.object({ id: z.int(), reason: z.enum(reasons).describe(meanings) }))
    .describe('those that were not put back; with `all` the first 1000'),
})
export type RedriveReport = z.output<typeof RedriveReport>
export const Purged = z.object({ purged: z.int() })
export type Purged = z.output<typeof Purged>

export const AuditRecord = z.object({
  id: z.int(),
  atMs: instantMs,
  actor: z.string().describe('`token:NAME`, or `database:ACCOUNT`'),
  action: z.string(),
  meshId: z.string().nullable(),
  subject: z.string().nullable(),
  count: z.int(),
})
export type AuditRecord = z.output<typeof AuditRecord>
export const Audit = z.object({ entries: z.array(AuditRecord) })
export type Audit = z.output<typeof Audit>
