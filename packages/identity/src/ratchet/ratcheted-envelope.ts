/**
 * Seals and opens envelopes with a ratchet instead of `crypto_box`. The inner header, the note and the padding are the same
 * (`envelope.ts`), so everything that a recipient checks inside the box, it checks inside the ratchet as well.
 */
import type { EnvelopeId, Millis } from '@sealpost/std'
import {
  type Correspondent,
  decodeEnvelope,
  type EnvelopeDraft,
  encodeEnvelope,
  type OpenRefusal,
  type OpenResult,
  type SealedEnvelope,
  type Sealer,
} from '../envelope/envelope.ts'
import type { Ratchet, RatchetNews, RatchetParties, RatchetPlace, RatchetRefusal } from './ratchet.ts'

/** `place`: pass it to `Ratchet.settle` when the message is settled. */
export type RatchetedOpening =
  | (Extract<OpenResult, { ok: true }> & { readonly place: RatchetPlace; readonly news: readonly RatchetNews[] })
  | {
      readonly ok: false
      readonly reason: OpenRefusal | RatchetRefusal
      readonly news: readonly RatchetNews[]
    }

/**
 * Seals a draft. Store the envelope and `ratchet.export()` in one batch before the first send, and resend the same bytes.
 * @throws OperatingError `key_unusable`
 */
export function sealRatcheted(sealer: Sealer, ratchet: Ratchet, draft: EnvelopeDraft, nowMs: Millis): SealedEnvelope {
  const { envelope, headerHash } = encodeEnvelope(sealer, draft)
  return { envelope: ratchet.seal(envelope, nowMs), headerHash }
}

/**
 * Opens an envelope, and compares its inner header like `openEnvelope`. Never throws on input from the network. A refusal
 * leaves the key of the message in place, because the genuine delivery may still come.
 */
export function openRatcheted(
  { sealer, ratchet, parties }: { sealer: Sealer; ratchet: Ratchet; parties: RatchetParties },
  envelope: Uint8Array,
  expected: { from: Correspondent; envelopeId: EnvelopeId },
  nowMs: Millis,
): RatchetedOpening {
  const opened = ratchet.open(envelope, parties, nowMs)
  if (!opened.ok) return { ok: false, reason: opened.code, news: opened.news }
  const { text, place, news } = opened
  const result = decodeEnvelope(sealer, text, expected)
  return result.ok ? { ...result, place, news } : { ...result, news }
}
