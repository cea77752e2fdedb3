/** The broker program: gives the Bun runtime its settings, then runs the broker. */

/**
 * Settings of the Bun runtime, which it reads when a process starts.
 *
 * RAM size: garbage may grow with the size of the machine, so a smaller size collects earlier. In a burst of 100,000 messages on a
 * machine of 24 GB the broker used 128–139 MB; with 200 MB it used 153–159, with 3 µs less CPU per message.
 *
 * Ratio: every other collection was a full one, 35 ms concurrent with a pause of 10 ms at its end, twice a second at 1,000
 * messages per second: most of the p99 there. A lower ratio makes full collections rarer, with the same memory.
 *
 * Timer: an idle runtime collects once a second, every other time the whole heap, which takes a tenth of a second with 10,000
 * sessions. Every minute, with rarer counts of an empty queue, 1,000 idle sessions cost 0.9 to 1.3 % of a core instead of 1.2 to 1.5.
 *
 * Threshold: the last compiler tier took a quarter of the CPU of two brokers in such a burst with half of it crossing. A ten
 * times higher threshold compiles only what runs always: 59 µs per message on both instead of 78.
 */
const RUNTIME_SETTINGS: Readonly<Record<string, string>> = {
  BUN_JSC_forceRAMSize: '100000000',
  BUN_JSC_minEdenToOldGenerationRatio: '0.17',
  BUN_GC_TIMER_INTERVAL: '60000',
  BUN_JSC_thresholdForFTLOptimizeAfterWarmUp: '1000000',
}

/**
 * Starts this program over in the same process, with the settings that its environment lacks; an operator's own values stay.
 * Where a process can't replace its program (Windows), the broker runs without them.
 */
function applyRuntimeSettings(): void {
  const { env } = process
  if (!process.execve || Object.keys(RUNTIME_SETTINGS).every((name) => env[name] !== undefined)) return
  const args = [process.execPath, ...process.execArgv, ...process.argv.slice(1)]
  const whole = { ...RUNTIME_SETTINGS, ...env } as Record<string, string>
  if (process.platform !== 'win32') process.execve(process.execPath, args, whole)
}

applyRuntimeSettings()
const { main } = await import('./broker.ts') // not before: loading it takes a third of a second
await main()
