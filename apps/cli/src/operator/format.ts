/** How the commands of operators show figures to people. */
import { fingerprint } from '@sealpost/identity'
import { wholeUnits } from '@sealpost/operator/texts'
import { isHex, type PeerKey } from '@sealpost/std'
import { InvalidArgumentError } from 'commander'
import { escapeName } from '../terminal-text.ts'

export function parseHex(bytes: number): (text: string) => string {
  return (text) => {
    if (isHex(text, bytes)) return text
    throw new InvalidArgumentError(`It is ${2 * bytes} hex digits.`)
  }
}

export const formatAge = (ms: number | null): string => (ms === null ? '' : wholeUnits(ms))

export const formatTime = (ms: number | null): string =>
  ms === null ? '' : new Date(ms).toISOString().slice(0, 16).replace('T', ' ')

/** Returns the member's name, or its key's fingerprint. */
export const nameOrFingerprint = (name: string | null, key: string): string =>
  name ? escapeName(name) : fingerprint(key as PeerKey)
export const formatMillis = (ms: number | null): string => (ms === null ? '–' : `${ms} ms`)
