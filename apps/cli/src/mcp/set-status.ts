/** The tool `set_status`. */
import { AVAILABILITIES, SUMMARY_MAX } from '@sealpost/protocol'
import { z } from 'zod'
import { tool } from './tool.ts'

export const setStatus = tool({
  name: 'set_status',
  title: 'Set your status',
  description:
    'Says to the mesh what you are at, until you say something else or this server ends. With dnd only mail that was sent as urgent comes; the rest waits at the broker.',
  effect: 'tells',
  input: z.object({
    availability: z.enum(AVAILABILITIES),
    summary: z
      .string()
      .max(SUMMARY_MAX)
      .default('')
      .describe('in plain ASCII, for peers who look; the broker reads it, so nothing that is secret'),
  }),
  output: z.object({ availability: z.string(), summary: z.string() }),
  run: async ({ availability, summary }, context, signal) => {
    if (summary !== '') context.checkEverybody()
    const { peer } = await context.session(signal)
    peer.setStatus({ availability, summary })
    return { content: { availability, summary } }
  },
})
