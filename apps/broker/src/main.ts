/** Applies the settings of the Bun runtime, then runs the broker. */
import { brokerCommand, RUNTIME_SETTINGS } from '@sealpost/broker-program'

/** Restarts this program in the same process with missing runtime settings, except on Windows, which lacks `execve`. */
function applyRuntimeSettings(): void {
  const { env } = process
  if (process.argv.length > 2 || !process.execve) return // a command that only prints something
  if (Object.keys(RUNTIME_SETTINGS).every((name) => env[name] !== undefined)) return
  const whole = { ...RUNTIME_SETTINGS, ...env } as Record<string, string>
  if (process.platform !== 'win32') process.execve(process.execPath, [...brokerCommand(process.execArgv)], whole)
}

applyRuntimeSettings()
const { main } = await import('./broker.ts') // imported late, because that takes a third of a second
await main()
