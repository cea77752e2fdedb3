/** The tool `send_message`. */
import { BODY_BYTES_MAX, PRIORITIES } from '@sealpost/protocol'
import { OperatingError } from '@sealpost/std'
import { z } from 'zod'
import { callPeer } from '../peer-session.ts'
import { explainUnknown } from '../recipient.ts'
import { labelPeer, peerShape } from './peer-words.ts'
import { tool } from './tool.ts'
import type { ToolContext } from './tool-context.ts'

/** Within the 60 s that clients give a call. */
export const STORED_WITHIN_MS = 20_000

export const isStoredShape = z
  .boolean()
  .describe('false: the broker is away; the message is kept and leaves later by itself. Do not send it again')

export const recipientShape = z
  .string()
  .min(1)
  .max(64)
  .describe('a name, a fingerprint or a key of 64 hex digits, from list_peers')
export const textShape = z.string().describe(`at most ${BODY_BYTES_MAX} bytes of UTF-8`)
export const ttlShape = z
  .number()
  .int()
  .min(0)
  .default(0)
  .describe('how long the broker keeps it; 0: as the broker does')
export const priorityShape = z.enum(PRIORITIES).default('next').describe('how urgent it is for the recipient')

const receipt = z.object({
  to: peerShape,
  bytes: z.number(),
  isStored: isStoredShape,
  envelopeId: z.string().nullable(),
})

export const sendMessage = tool({
  name: 'send_message',
  title: 'Send a message',
  description:
    'Sends a text to one peer, end-to-end encrypted. Done when the broker has stored it; the peer gets it when it is online. It can not be called back.',
  effect: 'sends',
  input: z.object({
    to: recipientShape,
    text: textShape,
    priority: priorityShape,
    ttlSeconds: ttlShape,
  }),
  output: receipt,
  run: async ({ to, text, priority, ttlSeconds }, context) => {
    const body = bodyOf(text)
    const key = await context.recipientOf(to)
    const question = { to: key, bodyBase64: body.toString('base64'), priority, ttlSeconds }
    const stored = await callPeer(context.shell, { method: 'send', question, withinMs: STORED_WITHIN_MS }).catch(
      (error) => keptOr(error, { context, to }),
    )
    const contacts = await context.readContacts()
    return {
      content: {
        to: labelPeer(key, contacts),
        bytes: body.length,
        isStored: stored !== null,
        envelopeId: stored?.envelopeId ?? null,
      },
    }
  },
})

/** @throws OperatingError `body_too_large` */
export function bodyOf(text: string): Buffer {
  const body = Buffer.from(text)
  if (body.length <= BODY_BYTES_MAX) return body
  throw new OperatingError('body_too_large', `A message has at most ${BODY_BYTES_MAX} bytes.`)
}

/** @returns null when the message is kept for later */
async function keptOr(
  error: Error & { code?: string },
  { context, to }: { context: ToolContext; to: string },
): Promise<null> {
  if (error.code === 'unreachable' || error.code === 'kept_for_later') return null
  if (error.code === 'unknown_recipient') await explainUnknown(context.shell, to)
  throw error
}
