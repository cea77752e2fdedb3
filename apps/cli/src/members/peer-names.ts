/** Who is meant by a word on the command line: a key, its fingerprint, a name this profile knows, or one it now learns. */
import { fingerprint, readFingerprint } from '@sealpost/identity'
import type { MemberEntry, PeerKey } from '@sealpost/sdk'
import { type Millis, OperatingError } from '@sealpost/std'
import { abortable } from '../deadline.ts'
import type { Output } from '../output.ts'
import { Contacts, isPeerKey, isUsableName, keyChanged } from '../profile/contacts.ts'
import { callPeer, type PeerSession } from '../session/peer-session.ts'
import type { Shell } from '../shell.ts'
import { escapeName } from '../terminal-text.ts'

/**
 * A fingerprint means the key that it is of, and never a name. A pinned name means its key, whatever the directory says now;
 * another one is looked up once and pinned, within `withinMs` or what `callPeer` takes. `PERSON/LABEL` is a device.
 * @throws OperatingError `name_unknown`, `name_unusable`, `unknown_device`, and those of `callPeer`
 */
export async function resolveRecipient(shell: Shell, word: string, withinMs?: Millis): Promise<PeerKey> {
  if (isPeerKey(word)) return word
  const contacts = await Contacts.read(shell.profile.contactsFile)
  const print = readFingerprint(word)
  if (print) return contacts.keyByFingerprint(print) ?? (await keyByFingerprint(shell, print, withinMs))
  const pinned = contacts.keyOf(word)
  if (pinned) return pinned
  if (word.includes('/')) return await resolveDevice(shell, word, withinMs)
  const key = await lookUp(shell, word, withinMs)
  if (!key) throw new OperatingError('name_unknown', `Nobody in this mesh is called ${escapeName(word)}.`)
  await contacts.pin(word, key)
  shell.output.info(`${word} is ${fingerprint(key)} from now on; compare it with them once`)
  return key
}

/** The directory says which keys there are; whether one is meant, the fingerprint alone. */
async function keyByFingerprint(shell: Shell, print: string, withinMs?: Millis): Promise<PeerKey> {
  const found = (await members(shell, withinMs)).find(({ peer }) => fingerprint(peer) === print)
  if (found) return found.peer
  throw new OperatingError('name_unknown', `Nobody in this mesh has the fingerprint ${print}.`)
}

/** `PERSON/LABEL`: the device that this person signed for, never what the directory calls so. */
async function resolveDevice(shell: Shell, word: string, withinMs?: Millis): Promise<PeerKey> {
  const at = word.lastIndexOf('/')
  const person = await resolveRecipient(shell, word.slice(0, at), withinMs)
  const devices = await callPeer(shell, {
    method: 'devices',
    params: person,
    ...(withinMs === undefined ? {} : { withinMs }),
  })
  const found = devices.find(({ label }) => label === word.slice(at + 1))
  if (found) return found.key
  throw new OperatingError('unknown_device', `There is no device ${escapeName(word)}: "device list" shows them.`)
}

/** The same for several words, one after the other. */
export async function resolveRecipients(shell: Shell, words: readonly string[]): Promise<PeerKey[]> {
  const keys: PeerKey[] = []
  for (const word of words) keys.push(await resolveRecipient(shell, word))
  return keys
}

/**
 * For a recipient that the broker does not know: perhaps its name has gone over to another key.
 * @throws OperatingError `key_changed`
 */
export async function explainUnknown(shell: Shell, word: string): Promise<void> {
  const contacts = await Contacts.read(shell.profile.contactsFile)
  const pinned = contacts.keyOf(word)
  const offered = pinned && (await lookUp(shell, word))
  if (pinned && offered && offered !== pinned) throw keyChanged(word, { pinned, offered })
}

async function lookUp(shell: Shell, name: string, withinMs?: Millis): Promise<PeerKey | undefined> {
  return (await members(shell, withinMs)).find((member) => member.name === name)?.peer
}

function members(shell: Shell, withinMs?: Millis): Promise<readonly MemberEntry[]> {
  const patience = withinMs === undefined ? {} : { withinMs }
  return callPeer(shell, { method: 'members', params: null, ...patience })
}

const ANSWER_WITHIN_MS = 10_000

export class SenderNames {
  readonly #session: PeerSession
  readonly #output: Output
  /** Asked for once; the directory may have no name for them. */
  readonly #asked = new Set<PeerKey>()

  constructor(session: PeerSession, output: Output) {
    this.#session = session
    this.#output = output
  }

  /** Pins a new name. Without an answer, or with a name that is another one's, the key has to do. Never throws. */
  async learn(key: PeerKey): Promise<void> {
    const { contacts, peer } = this.#session
    if (contacts.nameOf(key) !== undefined || this.#asked.has(key)) return
    this.#asked.add(key)
    try {
      const members = await abortable(peer.members(), AbortSignal.timeout(ANSWER_WITHIN_MS))
      const name = members.find((member) => member.peer === key)?.name
      if (name !== undefined && isUsableName(name)) await contacts.pin(name, key)
    } catch (error) {
      if (error instanceof OperatingError && error.code === 'key_changed')
        this.#output.warn(
          `The directory calls ${fingerprint(key)} by the name of another peer that you know: see \`sealpost peers\`.`,
        )
    }
  }
}
