/** Leaves groups, and handles the messages that concern groups that members have left. */
import { join } from 'node:path'
import type { GroupId, Message } from '@sealpost/sdk'
import { isLeaveRequest } from '@sealpost/sdk/groups'
import { labelOf } from '../messages/incoming-message.ts'
import { escapeName } from '../output.ts'
import { Contacts } from '../profile/contacts.ts'
import { isRecord, type Profile, readJsonFile, updateJsonFile } from '../profile/profile.ts'
import { callPeer } from '../session/peer-session.ts'
import type { Shell } from '../shell.ts'

const fileOf = ({ folder }: Profile): string => join(folder, 'left-groups.json')

/** The groups that the profile has left, with the epoch up to which it declines their messages. */
type LeftGroups = Readonly<Record<string, number>>

const isLeftGroups = (value: unknown): value is LeftGroups =>
  isRecord(value) && Object.values(value).every((epoch) => typeof epoch === 'number')

/** Declines messages of a group from now on, until its owner changes the group and still lists this member. */
export async function declineGroup(profile: Profile, { id, epoch }: { id: GroupId; epoch: number }): Promise<void> {
  await updateJsonFile(fileOf(profile), isLeftGroups, (left) => ({ ...left, [id]: epoch }))
}

/**
 * Settles a message of a group that this member has left, and a member's request to leave a group of this peer, which
 * it carries out. Returns whether it has done so.
 */
export async function takeGroupLeave(shell: Shell, message: Message): Promise<boolean> {
  const isTaken = message.group ? await isDeclined(shell.profile, message.group) : await carryOut(shell, message)
  if (isTaken) message.settle() // has no effect on a request that was returned to the queue
  return isTaken
}

async function isDeclined(profile: Profile, { id, epoch }: NonNullable<Message['group']>): Promise<boolean> {
  const left = await readJsonFile(fileOf(profile), isLeftGroups)
  return epoch <= (left?.[id] ?? 0)
}

const RETRY_MS = 60_000

/** Only the profile's own key may change its groups. */
async function carryOut(shell: Shell, message: Message): Promise<boolean> {
  const { output, profile } = shell
  const { thread, sender, user } = message
  if (!isLeaveRequest(message)) return false
  const call = { method: 'takeLeave', params: { thread: thread!, sender, user } } as const
  const isLeave = await callPeer(shell, call).catch((error: Error & { code?: string }) => {
    output.warn(`A member could not be removed from a group of yours (${error.code}).`)
    message.retry(RETRY_MS)
    return null
  })
  if (isLeave !== true) return isLeave === null
  const contacts = await Contacts.read(profile.contactsFile)
  output.info(`${escapeName(labelOf(contacts, message.user))} has left a group of yours`)
  return true
}
