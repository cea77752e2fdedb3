/** What a row of the table of tools is, and what it becomes for a client. */
import type { CallToolResult, McpServer, StandardSchemaWithJSON, ToolAnnotations } from '@modelcontextprotocol/server'
import { SealpostError } from '@sealpost/sdk'
import { OperatingError } from '@sealpost/std'
import type { z } from 'zod'
import type { ToolContext } from './tool-context.ts'

/** What a call does outside of this conversation: clients decide by its hints what to ask their user about. */
export type Effect = keyof typeof EFFECTS

interface EffectSpec {
  /** Words of the agent leave for somebody. */
  readonly speaks: boolean
  readonly hints: ToolAnnotations
}

/**
 * Reading is of the open world: what comes back was written by others. A message that was sent can't be called back, and
 * a settled or rejected one does not come again; these are marked destructive so that a client asks first.
 */
const EFFECTS = {
  looks: { speaks: false, hints: { readOnlyHint: true, openWorldHint: false } },
  reads: { speaks: false, hints: { readOnlyHint: true, openWorldHint: true } },
  sends: {
    speaks: true,
    hints: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
  },
  tells: {
    speaks: true,
    hints: { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: true },
  },
  saves: {
    speaks: false,
    hints: { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: true },
  },
  settles: {
    speaks: false,
    hints: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: false },
  },
  rejects: {
    speaks: true,
    hints: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: true },
  },
  'gives back': {
    speaks: false,
    hints: { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  },
} satisfies Record<string, EffectSpec>

export interface ToolResult<Output> {
  readonly content: Output
  /** The same for clients that show the model text only; default: the content as JSON. */
  readonly text?: string
}

export interface ToolSpec<Input extends z.ZodObject, Output extends z.ZodObject> {
  readonly name: string
  readonly title: string
  readonly description: string
  readonly effect: Effect
  readonly input: Input
  readonly output: Output
  /** @throws OperatingError, SealpostError: the code and the sentence reach the model */
  run(input: z.infer<Input>, context: ToolContext, signal: AbortSignal): Promise<ToolResult<z.infer<Output>>>
}

export interface Tool extends Pick<ToolSpec<z.ZodObject, z.ZodObject>, 'name' | 'title' | 'description' | 'effect'> {
  readonly speaks: boolean
  readonly inputNames: readonly string[]
  register(server: McpServer, context: ToolContext): void
}

export function tool<Input extends z.ZodObject, Output extends z.ZodObject>(row: ToolSpec<Input, Output>): Tool {
  const { name, title, description, effect, input, output } = row
  const { speaks, hints }: EffectSpec = EFFECTS[effect]
  const run = async (given: z.infer<Input>, context: ToolContext, signal: AbortSignal): Promise<CallToolResult> => {
    try {
      const { content, text = JSON.stringify(content) } = await row.run(given, context, signal)
      return { content: [{ type: 'text', text }], structuredContent: content }
    } catch (error) {
      return errorResult(error, context)
    }
  }
  return {
    ...{ name, title, description, effect, speaks, inputNames: Object.keys(input.shape) },
    register: (server, context) => {
      // Without their types: the SDK infers none of a schema that is itself a type parameter.
      const schemas: Record<'inputSchema' | 'outputSchema', StandardSchemaWithJSON> = {
        inputSchema: input,
        outputSchema: output,
      }
      server.registerTool(name, { title, description, annotations: hints, ...schemas }, (given, { mcpReq }) =>
        run(given as z.infer<Input>, context, mcpReq.signal),
      )
    },
  }
}

/** Under `_meta`, since a client checks `structuredContent` against the tool's `outputSchema`, also with `isError`. */
export const ERROR_META = 'sealpost/error'

function errorResult(error: unknown, { shell }: ToolContext): CallToolResult {
  const { code, message, isRetryable } = describeError(error)
  if (code === 'internal') shell.output.warn(`A fault of the program itself: ${(error as Error).stack ?? error}`)
  return {
    isError: true,
    content: [{ type: 'text', text: `${code}: ${message}` }],
    _meta: { [ERROR_META]: { code, message, isRetryable } },
  }
}

function describeError(error: unknown): { code: string; message: string; isRetryable: boolean } {
  if (error instanceof SealpostError) return error
  if (error instanceof OperatingError) {
    const { code, message, retryable } = error
    return { code, message, isRetryable: retryable }
  }
  return { code: 'internal', message: 'A fault of sealpost itself; its stderr says more.', isRetryable: false }
}
