import { spawnSync } from 'node:child_process'
import { OperatingError } from '@sealpost/std'

/** Runs a build program to its end. @throws OperatingError `build_failed`, with the program's output */
export function run(command: readonly string[], cwd: string): void {
  const [program, ...args] = command
  const { status, stdout, stderr, error } = spawnSync(program!, args, {
    cwd,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  if (error) throw error
  const output = `${stdout}${stderr}`.trim()
  if (status !== 0) throw new OperatingError('build_failed', `\`${command.join(' ')}\` failed: ${output}`)
}
