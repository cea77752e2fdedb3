/**
 * The documented shapes of the files of MCP clients, for a test of what `sealpost mcp install` writes. They are strict:
 * a field that the documentation does not mention is an error.
 */
import { z } from 'zod'

const env = z.record(z.string(), z.string())
const nonEmpty = z.string().min(1)
const command = { command: nonEmpty, args: z.array(z.string()).optional(), env: env.optional() }

const section = <Name extends string>(name: Name, server: z.ZodType) =>
  z.looseObject({ [name]: z.record(z.string(), server) })

const commandHook = z.strictObject({ type: z.literal('command'), command: nonEmpty, timeout: z.number().positive() })

const hookGroups = <Event extends string>(events: readonly Event[], hook: z.ZodType) =>
  z.looseObject({
    hooks: z.partialRecord(
      z.enum(events),
      z.array(z.strictObject({ matcher: z.string().optional(), hooks: z.array(hook).min(1) })),
    ),
  })

/** https://code.claude.com/docs/en/mcp */
export const claudeServers = section('mcpServers', z.strictObject({ type: z.literal('stdio'), ...command }))

/** https://code.claude.com/docs/en/hooks */
export const claudeHooks = hookGroups(
  [
    'SessionStart',
    'UserPromptSubmit',
    'PreToolUse',
    'PostToolUse',
    'Notification',
    'Stop',
    'SubagentStop',
    'SessionEnd',
  ],
  commandHook.extend({ async: z.boolean().optional() }),
)

/** https://modelcontextprotocol.io/docs/develop/connect-local-servers */
export const claudeDesktopServers = section('mcpServers', z.strictObject(command))

/** The definition `RawMcpServerConfig` of codex-rs/core/config.schema.json in github.com/openai/codex */
export const codexServers = section(
  'mcp_servers',
  z.strictObject({
    ...command,
    cwd: z.string().optional(),
    enabled: z.boolean().optional(),
    startup_timeout_sec: z.number().optional(),
    tool_timeout_sec: z.number().optional(),
  }),
)

/** https://developers.openai.com/codex/hooks */
export const codexHooks = hookGroups(
  ['SessionStart', 'PreToolUse', 'PermissionRequest', 'PostToolUse', 'UserPromptSubmit', 'Stop'],
  commandHook,
)

/** https://cursor.com/docs/mcp */
export const cursorServers = section(
  'mcpServers',
  z.strictObject({ type: z.literal('stdio'), ...command, envFile: z.string().optional() }),
)

/** https://cursor.com/docs/hooks */
export const cursorHooks = z.strictObject({
  version: z.literal(1),
  hooks: z.partialRecord(
    z.enum(['sessionStart', 'sessionEnd', 'beforeSubmitPrompt', 'preToolUse', 'postToolUse', 'stop']),
    z.array(z.strictObject({ command: nonEmpty })),
  ),
})

/** https://code.visualstudio.com/docs/agents/reference/mcp-configuration */
export const vscodeServers = section(
  'servers',
  z.strictObject({ type: z.literal('stdio'), ...command, cwd: z.string().optional(), envFile: z.string().optional() }),
)

/** https://docs.windsurf.com/windsurf/cascade/mcp */
export const windsurfServers = section('mcpServers', z.strictObject({ ...command, disabled: z.boolean().optional() }))

/** https://docs.windsurf.com/windsurf/cascade/hooks */
export const windsurfHooks = z.strictObject({
  hooks: z.partialRecord(
    z.enum(['pre_user_prompt', 'post_cascade_response']),
    z.array(
      z
        .strictObject({
          command: nonEmpty.optional(),
          powershell: nonEmpty.optional(),
          show_output: z.boolean().optional(),
          working_directory: z.string().optional(),
        })
        .refine((hook) => hook.command !== undefined || hook.powershell !== undefined),
    ),
  ),
})

/** docs/tools/mcp-server.md in github.com/google-gemini/gemini-cli */
export const geminiServers = section(
  'mcpServers',
  z.strictObject({
    ...command,
    cwd: z.string().optional(),
    timeout: z.number().optional(),
    trust: z.boolean().optional(),
  }),
)

/** docs/hooks/reference.md in github.com/google-gemini/gemini-cli; `timeout` is in milliseconds. */
export const geminiHooks = hookGroups(
  ['SessionStart', 'SessionEnd', 'BeforeAgent', 'AfterAgent', 'BeforeTool', 'AfterTool', 'Notification'],
  commandHook.extend({ name: z.string(), timeout: z.number().min(1000) }),
)

/** https://docs.github.com/en/copilot/how-tos/copilot-cli/customize-copilot/add-mcp-servers */
export const copilotServers = section(
  'mcpServers',
  z.strictObject({ type: z.enum(['local', 'stdio']), ...command, tools: z.array(z.string()) }),
)

/** https://docs.github.com/en/copilot/reference/hooks-reference */
export const copilotHooks = z.strictObject({
  version: z.literal(1),
  hooks: z.partialRecord(
    z.enum(['sessionStart', 'sessionEnd', 'userPromptSubmitted', 'preToolUse', 'postToolUse', 'agentStop']),
    z.array(
      z
        .strictObject({
          type: z.literal('command'),
          bash: nonEmpty.optional(),
          powershell: nonEmpty.optional(),
          cwd: z.string().optional(),
          env: env.optional(),
          timeoutSec: z.number().positive().optional(),
        })
        .refine((hook) => hook.bash !== undefined || hook.powershell !== undefined),
    ),
  ),
})

/** https://opencode.ai/config.json, the definition `McpLocalConfig` */
export const opencodeServers = section(
  'mcp',
  z.strictObject({
    type: z.literal('local'),
    command: z.array(z.string()).min(1),
    environment: env.optional(),
    enabled: z.boolean().optional(),
    timeout: z.number().int().optional(),
  }),
)

/** https://zed.dev/docs/ai/mcp */
export const zedServers = section('context_servers', z.strictObject(command))

/** https://agentskills.io/specification: the fields of the front matter of a skill */
export const skillHead = z.strictObject({
  name: z
    .string()
    .regex(/^[a-z0-9]+(?:-[a-z0-9]+)*$/)
    .max(64),
  description: z.string().min(1).max(1024),
})
