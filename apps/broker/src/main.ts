/** Applies the settings of the Bun runtime, then runs the broker. */
import { brokerCommand, RUNTIME_SETTINGS } from '@sealpost/broker-program'

/**
 * Restarts this program in the same process with the settings that its environment lacks. Values that an operator has
 * set stay unchanged. On a platform where a process can't replace its program (Windows), the broker runs without the
 * settings.
 */
function applyRuntimeSettings(): void {
  const { env } = process
  if (process.argv.length > 2 || !process.execve) return // it only prints something and exits
  if (Object.keys(RUNTIME_SETTINGS).every((name) => env[name] !== undefined)) return
  const whole = { ...RUNTIME_SETTINGS, ...env } as Record<string, string>
  if (process.platform !== 'win32') process.execve(process.execPath, [...brokerCommand(process.execArgv)], whole)
}

applyRuntimeSettings()
const { main } = await import('./broker.ts') // imported late: loading it takes a third of a second
await main()
