/** Gives the Bun runtime its settings, then runs the broker. */
import { brokerCommand, RUNTIME_SETTINGS } from '@sealpost/broker-program'

/**
 * Restarts this program in the same process with the settings that its environment lacks; values that an operator has
 * set stay unchanged. Where a process can't replace its program (Windows), the broker runs without them.
 */
function applyRuntimeSettings(): void {
  const { env } = process
  if (!process.execve || Object.keys(RUNTIME_SETTINGS).every((name) => env[name] !== undefined)) return
  const args = [...brokerCommand(process.execArgv), ...process.argv.slice(2)]
  const whole = { ...RUNTIME_SETTINGS, ...env } as Record<string, string>
  if (process.platform !== 'win32') process.execve(process.execPath, args, whole)
}

applyRuntimeSettings()
const { main } = await import('./broker.ts') // imported late: loading it takes a third of a second
await main()
