import { spawnSync } from 'node:child_process'
import { OperatingError } from '@sealpost/std'

/** Runs a build program and returns its output. @throws OperatingError `build_failed`, with the program's output */
export function run(command: readonly string[], cwd: string): string {
  const [program, ...args] = command
  const { status, stdout, stderr, error } = spawnSync(program!, args, {
    cwd,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    maxBuffer: Infinity,
  })
  if (error) throw error
  const output = `${stdout}${stderr}`.trim()
  if (status !== 0) throw new OperatingError('build_failed', `\`${command.join(' ')}\` failed: ${output}`)
  return stdout
}
