import { spawnSync } from 'node:child_process'
import { statSync } from 'node:fs'
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

/** Packs the npm package in `folder` into `destination`. `level`: of gzip; default: 9. @throws OperatingError `build_failed` */
export function packFolder(folder: string, destination: string, level = 9): void {
  const options = ['--quiet', '--gzip-level', String(level), '--destination', destination]
  run([process.execPath, 'pm', 'pack', ...options], folder)
}

/** Prints the path and the size of a file. */
export function reportFile(path: string): void {
  console.log(`${path}  ${(statSync(path).size / 1e6).toFixed(2)} MB`)
}
