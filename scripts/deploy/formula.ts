/** Writes the version and the checksums of a release into the Homebrew formula. */
import { textOf } from './sources.ts'

export const FORMULA = 'docs/deploy/homebrew/sealpost.rb'

/** `sha256` returns the checksum of a binary by its file name. */
export function formulaOf(version: string, sha256: (name: string) => string): string {
  return textOf(FORMULA)
    .replace(/^( {2}version ").*"$/m, `$1${version}"`)
    .replace(/(\/(sealpost-[\w-]+)"\n\s+sha256 ")[0-9a-f]{64}/g, (_, head, name) => `${head}${sha256(name)}`)
}
