/** What a peer tells besides messages, for the person at the terminal. */
import { fingerprint } from '@sealpost/identity'
import type { LostMessage, Message, PeerEvent } from '@sealpost/sdk'
import type { PeerKey } from '@sealpost/std'
import type { Output } from '../output.ts'
import type { Contacts } from '../profile/contacts.ts'
import { escapeName } from '../terminal-text.ts'

/** Returns what people see for a peer: its pinned name, or its fingerprint. */
export function labelOf(contacts: Contacts, key: PeerKey): string {
  return contacts.nameOf(key) ?? fingerprint(key)
}

/** The same for who sent a message: a device by its person, and what that person calls it. */
export function senderLabelOf(
  contacts: Contacts,
  { user: person, deviceLabel }: Pick<Message, 'user' | 'deviceLabel'>,
): string {
  return deviceLabel === null ? labelOf(contacts, person) : `${labelOf(contacts, person)}/${deviceLabel}`
}

/** Answers what takes the events of one peer. Being away is told once, and so is the return. */
export function peerEventReporter(output: Output, contacts: Contacts): (event: PeerEvent) => void {
  let isAway = false
  return (event) => {
    if (event.type === 'disconnected') {
      if (!isAway) output.info(`no connection to the broker (${event.code}); trying again`)
      isAway = true
    } else if (event.type === 'connected') {
      if (isAway) output.info('connected again')
      isAway = false
      if (event.durability === 'degraded')
        output.warn('The broker says that its database may lose what it has acknowledged.')
    } else report(event, output, contacts)
  }
}

function report(event: PeerEvent, output: Output, contacts: Contacts): void {
  const label = (key: PeerKey) => labelOf(contacts, key)
  switch (event.type) {
    case 'gap':
      return output.warn(
        `Of ${label(event.sender)} ${event.missing} missing: dropped, held back, expired or given up before this one.`,
      )
    case 'recovered':
      if (!event.isRecovered) output.warn(lostNotice(event.lost, label))
      return
    case 'forked':
      return output.warn(
        `Two messages in the name of ${label(event.sender)} claim one place: somebody else may hold its box key, or yours.`,
      )
    case 'tamper':
      return output.warn(
        `An envelope said to be of ${label(event.sender)} was not taken: ${escapeName(event.reason)}. Mail stays among the dead letters.`,
      )
    case 'too_old':
      return output.warn(
        `A message of ${label(event.sender)} from ${new Date(event.sentAtMs).toISOString()} was rejected as too old.`,
      )
    case 'group_tamper':
      return output.warn(`The broker handed out a group that its owner did not sign, or an old one (${event.reason}).`)
    case 'identity_changed':
      return void renameContactKey(event, output, contacts)
    case 'user_tamper':
      return output.warn(`The broker handed out a device or a new key that its person did not sign (${event.reason}).`)
    case 'key_changed':
      return output.info(`${label(event.peer)} has a new box key, signed by the key you know`)
    case 'key_refused':
      return output.warn(`The broker has no believable key for ${label(event.peer)} (${event.reason}).`)
    case 'sent':
      return output.info(`a message kept from before is stored for ${label(event.to)} now`)
    case 'send_failed':
      return output.warn(`A message kept from before was not sent to ${label(event.to)} (${event.error.code}).`)
    default:
      return
  }
}

/** Both keys signed it, so the name goes with it. A file that can't be written is tried again in the next session. */
async function renameContactKey(
  { former, successor }: Extract<PeerEvent, { type: 'identity_changed' }>,
  output: Output,
  contacts: Contacts,
): Promise<void> {
  const name = contacts.nameOf(former)
  if (name === undefined) return
  output.info(`${escapeName(name)} goes by a new key now, signed by the one you know: ${fingerprint(successor)}`)
  await contacts.accept(name, successor).catch(() => undefined)
}

function lostNotice(lost: readonly LostMessage[], label: (key: PeerKey) => string): string {
  const senders = [...new Set(lost.map(({ sender }) => label(sender)))].join(', ')
  return `${lost.length} of the messages to you from ${senders} will not come: they expired, or were given up.`
}
