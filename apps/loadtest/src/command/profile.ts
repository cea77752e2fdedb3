/** CPU profiles of the programs of a run. */
import { resolve } from 'node:path'

/** Words for Bun that make a program write its CPU profile when it ends. */
export function profileWords({ profileFolder }: { readonly profileFolder: string | null }): string[] {
  return profileFolder === null ? [] : ['--cpu-prof', `--cpu-prof-dir=${resolve(profileFolder)}`]
}
