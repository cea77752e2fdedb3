/** The tool `reply_to_message`: what a request waits for, and an answer that stays in its thread. */
import { z } from 'zod'
import { abortable } from '../deadline.ts'
import { bodyOf, isStoredShape, STORED_WITHIN_MS, textShape } from './send-message.ts'
import { tool } from './tool.ts'

export const replyToMessage = tool({
  name: 'reply_to_message',
  title: 'Reply to a message',
  description:
    'Answers the sender of an unsettled message, in its thread; what a request waits for. It says that no person wrote the answer, so that two machines do not thank each other for ever. Settle the message afterwards.',
  effect: 'sends',
  input: z.object({
    messageId: z.string().describe('from read_inbox'),
    text: textShape,
    isError: z.boolean().default(false).describe('the answer says that what was asked for failed'),
  }),
  output: z.object({ messageId: z.string(), bytes: z.number(), isStored: isStoredShape }),
  run: async ({ messageId, text, isError }, context) => {
    const { message } = context.mail.find(messageId)
    await context.checkRecipient(message.sender)
    const body = bodyOf(text)
    const options = { isAutomatic: true }
    const answer = isError ? message.replyError(text, options) : message.reply(text, options)
    const late = AbortSignal.timeout(STORED_WITHIN_MS)
    const isStored = await abortable(answer, late).then(
      () => true,
      (error) => {
        if (late.aborted) return false // kept in the profile
        throw error
      },
    )
    return { content: { messageId, bytes: body.length, isStored } }
  },
})
