/** `sealpost sessions` lists and ends the sessions of this profile's member: its agents, listeners and chats. */
import { fingerprint, readFingerprint } from '@sealpost/identity'
import type { PeerKey, PresenceEntry } from '@sealpost/sdk'
import { forgetSession, type LocalSession, localSessions } from '@sealpost/sdk/sessions'
import type { Device } from '@sealpost/sdk/users'
import { type Millis, OperatingError } from '@sealpost/std'
import { Command } from 'commander'
import { escapeName, formatTime } from '../output.ts'
import { callPeer } from '../session/peer-session.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { presenceText } from './peers.ts'

export function sessionsCommand(run: RunAction): Command {
  return new Command('sessions')
    .description('List your sessions and devices. Each has an address: other members write to YOU/LABEL.')
    .addCommand(endCommand(run))
    .addHelpText('after', examples('sealpost sessions', 'sealpost sessions --json', 'sealpost sessions end laptop-2'))
    .action(run(list))
}

interface SessionEntry {
  readonly label: string
  readonly key: PeerKey
  readonly fingerprint: string
  /** False also for an unnamed session whose mail another session receives, because its process is gone. */
  readonly isOnline: boolean
  readonly availability: PresenceEntry['availability'] | null
  readonly summary: string
  /** Whether its keys are in this profile. */
  readonly isHere: boolean
  /** Whether it was started with --as; null for a session on another machine. */
  readonly isNamed: boolean | null
  /** When a session of this profile was last used; null while it is online, and for one on another machine. */
  readonly lastUsedMs: Millis | null
}

async function list(shell: Shell): Promise<void> {
  const [devices, { online }, local] = [
    await callPeer(shell, { method: 'devices', params: null }),
    await callPeer(shell, { method: 'directory', params: null }),
    await localSessions(shell.profile.folder),
  ]
  const present = new Map(online.map((entry) => [entry.peer, entry]))
  const here = new Map(local.map((session) => [session.label, session]))
  const entries = devices
    .map((device) => entryOf(device, present.get(device.key), here.get(device.label)))
    .toSorted((a, b) => a.label.localeCompare(b.label, 'en', { numeric: true }))
  const { output } = shell
  await output.results(entries, () =>
    output.table(['LABEL', 'NOW', 'LAST USED', 'WHERE', 'FINGERPRINT'], entries.map(rowOf)),
  )
}

function entryOf(
  { key, label }: Device,
  reported: PresenceEntry | undefined,
  local: LocalSession | undefined,
): SessionEntry {
  const presence = local?.isRunning === false ? undefined : reported
  return {
    ...{ label, key, fingerprint: fingerprint(key), isOnline: presence !== undefined },
    ...{ availability: presence?.availability ?? null, summary: presence?.summary ?? '' },
    ...{ isHere: local !== undefined, isNamed: local?.isNamed ?? null },
    lastUsedMs: presence || !local ? null : local.lastUsedMs,
  }
}

const rowOf = (entry: SessionEntry): string[] => [
  escapeName(entry.label),
  entry.isOnline ? presenceText(entry) : 'offline',
  formatTime(entry.lastUsedMs),
  entry.isHere ? 'this machine' : 'another machine',
  entry.fingerprint,
]

function endCommand(run: RunAction): Command {
  return new Command('end')
    .description(
      'End one of your sessions, immediately and permanently. Messages that are queued for it are lost. Its label can be used again.',
    )
    .argument('<LABEL>', "the session's label, fingerprint or key (64 hex digits)")
    .addHelpText('after', examples('sealpost sessions end laptop-2'))
    .action(run(end))
}

async function end(shell: Shell, _options: object, word: string): Promise<void> {
  const devices = await callPeer(shell, { method: 'devices', params: null })
  const print = readFingerprint(word)
  const session = devices.find(({ label, key }) =>
    print ? fingerprint(key) === print : label === word || key === word,
  )
  if (!session)
    throw new OperatingError(
      'session_unknown',
      `You have no session ${escapeName(word)}. "sealpost sessions" lists your sessions.`,
    )
  await callPeer(shell, { method: 'removeDevice', params: session.key }).catch((error: Error & { code?: string }) => {
    throw error.code === 'unknown_device' ? notOurs(session.label, error) : error
  })
  await forgetSession(shell.profile.folder, session.label)
  const { output } = shell
  if (output.isJson) await output.result({ label: session.label, key: session.key, ended: true }, () => '')
  else output.info(`ended the session ${escapeName(session.label)}`)
}

/** A device can end only the sessions that it has started. */
function notOurs(label: string, cause: Error): OperatingError {
  return new OperatingError(
    'session_unknown',
    `Another machine has started the session ${escapeName(label)}. End it there, or with the key of the member.`,
    { cause },
  )
}
