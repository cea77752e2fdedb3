/** Defines the tools that send: `send_message`, `reply_to_message`, and those for groups. */
import { BODY_BYTES_MAX, PRIORITIES, type Priority } from '@sealpost/protocol'
import { sentLogOf, WAIT_GOALS } from '@sealpost/sdk/sent'
import { type Millis, OperatingError } from '@sealpost/std'
import { z } from 'zod'
import { declineGroup } from '../members/group-leaves.ts'
import { explainUnknown } from '../members/member-list.ts'
import { findOwners } from '../members/owners.ts'
import { base64Of, type Content } from '../messages/content.ts'
import { isEverybody, isOnePeer, readersOf, resolveAudience } from '../messages/delivery.ts'
import { awaitEach, countOf, type WaitOptions, waitUntil, wishesFor } from '../messages/send-many.ts'
import type { DeviceResult } from '../session/bulk-calls.ts'
import { findGroup, type GroupFacts } from '../session/peer-calls.ts'
import { callPeer, unreachable } from '../session/peer-session.ts'
import { abortable } from '../shell.ts'
import { labelDevice, labelPeer, NOTICE, peerShape, visible } from './peer-tools.ts'
import { type ToolContext, tool, WAIT_SECONDS_MAX } from './tool.ts'

/** How much later than its wait a call may return. */
export const REPLY_WITHIN_MS = 5_000
/** The time limit for storing. Clients allow 60 s per call. */
export const STORED_WITHIN_MS = 20_000

const isStoredShape = z
  .boolean()
  .describe(
    "false: the broker is unreachable; the message is stored in the profile and sent later automatically. Don't send it again",
  )

export const recipientShape = z
  .string()
  .min(1)
  .max(97)
  .describe(
    'a name, the address of a session such as bob/api-1, a fingerprint or a key of 64 hex digits, from list_peers',
  )
const RECIPIENTS_MAX = 100
export const textShape = z
  .string()
  .describe(`UTF-8; a text of more than ${BODY_BYTES_MAX} bytes is sent as a file with a preview`)
export const filePathShape = z
  .string()
  .optional()
  .describe('a file to attach, in the folder that your user allowed with --send-files')
export const notBeforeShape = z.iso
  .datetime({ offset: true })
  .optional()
  .describe('when to deliver the message, such as 2026-12-01T09:00:00+01:00; default: immediately')
export const ttlShape = z
  .number()
  .int()
  .min(0)
  .default(0)
  .describe("how long the broker stores the message; 0: the broker's default")
export const priorityShape = z.enum(PRIORITIES).default('next').describe('how urgent the message is for the recipient')

export const confirmShape = z
  .boolean()
  .default(false)
  .describe('ask each recipient for a signed confirmation, which message_status reports; at most 64 recipients')

const outcomeShape = z.object({
  to: peerShape,
  group: z.string().nullable().describe('the id of the group through which the peer is a recipient'),
  envelopeId: z.string().nullable(),
  code: z.string().nullable().describe('why the message was not stored or has not reached waitFor; null: it has'),
  state: z.string().nullable().describe('how far the message got for this peer; null: waitFor is stored'),
})

const receipt = z.object({
  to: peerShape.nullable().describe('null: there are several recipients'),
  bytes: z.number().describe('the size of the text'),
  isFile: z.boolean().describe('the message has a file'),
  isStored: isStoredShape,
  envelopeId: z
    .string()
    .nullable()
    .describe('the id to pass to message_status; null: the message is not stored yet, or there are several recipients'),
  state: z
    .string()
    .nullable()
    .describe(
      'how far the message got: stored, pushed, read, settled, confirmed, or how it ended; null: there are several recipients. If waitFor was not reached, call message_status later',
    ),
  outcomes: z.array(outcomeShape).describe('one for each recipient, if there are several'),
})

export const sendMessage = tool({
  name: 'send_message',
  title: 'Send a message',
  description:
    "Sends a text, and perhaps a file, to peers, end-to-end encrypted. Succeeds when the broker has stored the message; each recipient receives the message when it is online. You can't recall a message.",
  effect: 'sends',
  input: z.object({
    to: z
      .union([recipientShape, z.array(recipientShape).min(1).max(RECIPIENTS_MAX)])
      .describe('one recipient or several: names, fingerprints or keys from list_peers, or @GROUP'),
    text: textShape,
    priority: priorityShape,
    ttlSeconds: ttlShape,
    notBefore: notBeforeShape,
    filePath: filePathShape,
    waitFor: z
      .enum(WAIT_GOALS)
      .default('stored')
      .describe(
        'when to return: the broker has stored the message, has pushed it to the recipient, or reports that the recipient settled it; confirmed: the recipient has signed that',
      ),
    waitSeconds: z.number().min(0).max(WAIT_SECONDS_MAX).default(20).describe('how long to wait for waitFor'),
  }),
  output: receipt,
  run: async ({ to, text, priority, ttlSeconds, notBefore, filePath, waitFor, waitSeconds }, context, signal) => {
    const words = [to].flat()
    const content = await context.contentOf({ text, filePath })
    const terms = { priority, ttlSeconds, ...(notBefore && { notBefore: Date.parse(notBefore) }) }
    const [word] = words
    if (words.length > 1 || !isOnePeer(word!))
      return {
        content: await sendToMany(context, { words, content, terms, wait: { wait: waitFor, timeout: waitSeconds } }),
      }
    const key = await context.recipientOf(word!)
    const { sent: log } = await context.session(signal)
    const file = await content.upload(context.shell, key)
    const attachment = file ? { attachment: file.text } : {}
    const goal = { wait: waitFor, timeoutMs: waitSeconds * 1000, asksConfirmation: waitFor === 'confirmed' }
    const params = { to: key, bodyBase64: base64Of(content), ...terms, ...attachment, ...goal }
    const withinMs = Math.max(STORED_WITHIN_MS, goal.timeoutMs + REPLY_WITHIN_MS)
    const stored = await inTime(log.sendAndWait(params), withinMs).catch((error) =>
      keptOr(error, { context, to: word! }),
    )
    await file?.done()
    const contacts = await context.readContacts()
    const ownerOf = await findOwners(context.shell, contacts, [key])
    return {
      content: {
        to: labelDevice(key, ownerOf(key), contacts),
        ...{ bytes: content.bytes, isFile: file !== null, isStored: stored !== null },
        ...{ envelopeId: stored?.envelopeId ?? null, state: stored?.sent.state ?? 'sending', outcomes: [] },
      },
    }
  },
})

interface ManySend {
  readonly words: readonly string[]
  readonly content: Content
  readonly terms: { readonly priority: Priority; readonly ttlSeconds: number; readonly notBefore?: number }
  readonly wait: WaitOptions
}

/** @throws OperatingError `unreachable`, after which the session has the message, and the errors of the promise */
function inTime<T>(promise: Promise<T>, withinMs: Millis): Promise<T> {
  const late = AbortSignal.timeout(withinMs)
  return abortable(promise, late).catch((error) => {
    throw late.aborted ? unreachable() : error
  })
}

async function sendToMany(
  context: ToolContext,
  { words, content, terms, wait }: ManySend,
): Promise<z.infer<typeof receipt>> {
  if (isEverybody(words)) throw new OperatingError('usage', 'Nothing was sent: name the recipients.')
  const { shell } = context
  const audience = await resolveAudience(shell, words)
  const ownerOf = await findOwners(shell, await context.readContacts(), audience.peers)
  for (const key of audience.peers) await context.checkRecipient(key, ownerOf(key).user)
  for (const group of audience.groups) await checkMembers(group, context)
  const wishes = wishesFor(wait, await countOf(shell, audience))
  const file = await content.upload(shell, await readersOf(shell, audience))
  const groups = audience.groups.map(({ id }) => id)
  const attachment = file ? { attachment: file.text } : {}
  const params = { peers: audience.peers, groups, bodyBase64: base64Of(content), ...terms, ...wishes, ...attachment }
  const until = waitUntil(wait)
  const stored = await callPeer(shell, { method: 'sendEach', params, withinMs: STORED_WITHIN_MS }).catch(nullIfKept)
  await file?.done()
  const outcomes = stored && (await awaitEach(shell, stored, until))
  const contacts = await context.readContacts()
  return {
    ...{ to: null, bytes: content.bytes, isFile: file !== null },
    ...{ isStored: outcomes !== null, envelopeId: null, state: null },
    outcomes: (outcomes ?? []).map(({ peer, group, envelopeId, code, state = null }) => ({
      ...{ to: labelDevice(peer, ownerOf(peer), contacts), group, envelopeId, code, state },
    })),
  }
}

/** Like `nullIfKept`, but explains why a recipient is unknown. */
async function keptOr(
  error: Error & { code?: string },
  { context, to }: { context: ToolContext; to: string },
): Promise<null> {
  if (error.code === 'unknown_recipient') await explainUnknown(context.shell, to)
  return nullIfKept(error)
}

export const replyToMessage = tool({
  name: 'reply_to_message',
  title: 'Reply to a message',
  description:
    'Sends a reply to the sender of an unsettled message, in the same thread. A request waits for this reply. The reply is marked as automatic, so that two machines do not reply to each other endlessly. Settle the message afterwards.',
  effect: 'sends',
  input: z.object({
    messageId: z.string().describe('from read_inbox'),
    text: textShape,
    filePath: filePathShape,
    isError: z.boolean().default(false).describe('the reply reports that the requested work failed'),
    confirm: confirmShape,
  }),
  output: z.object({
    messageId: z.string(),
    bytes: z.number(),
    isStored: isStoredShape,
    envelopeId: z.string().nullable().describe('the id to pass to message_status; null: the reply is not stored yet'),
  }),
  run: async ({ messageId, text, filePath, isError, confirm }, context, signal) => {
    const { message } = context.mail.find(messageId)
    await context.checkRecipient(message.sender, message.user)
    const said = await context.contentOf({ text, filePath })
    const file = await said.upload(context.shell, message.sender)
    const options = { isAutomatic: true, ...(file && { attachment: file.text }) }
    const { peer } = await context.session(signal)
    const send = () =>
      isError ? message.replyError(new TextDecoder().decode(said.body), options) : message.reply(said.body, options)
    const answer = confirm ? sentLogOf(peer).asking('all', send) : send()
    const late = AbortSignal.timeout(STORED_WITHIN_MS)
    const envelopeId = await abortable(answer, late).then(
      (stored) => stored.envelopeId,
      (error) => {
        if (late.aborted) return null // the profile has the message
        throw error
      },
    )
    await file?.done()
    return { content: { messageId, bytes: said.bytes, isStored: envelopeId !== null, envelopeId } }
  },
})

export const leaveGroup = tool({
  name: 'leave_group',
  title: 'Leave a group',
  description:
    'Leaves a group: asks its owner to remove you, and declines the messages of the group until then. Only the owner can add you again.',
  effect: 'sends',
  input: z.object({ group: z.string().min(1).max(64).describe('a name or an id from list_groups') }),
  output: z.object({ left: z.object({ id: z.string(), name: z.string() }) }),
  run: async ({ group: word }, { shell }) => {
    const group = findGroup(await callPeer(shell, { method: 'groups', params: null }), word)
    await callPeer(shell, { method: 'leaveGroup', params: { group: group.id } })
    await declineGroup(shell.profile, group)
    return { content: { left: { id: group.id, name: visible(group.name) } } }
  },
})

const GROUPS_MAX = 200

const groupShape = z.object({
  id: z.string(),
  name: z.string().describe('the name that its owner gave it'),
  owner: peerShape,
  members: z.array(peerShape),
})

export const listGroups = tool({
  name: 'list_groups',
  title: 'List groups',
  description: 'Lists the groups that you are a member of or own, with their members, as the owner signed them.',
  effect: 'lists',
  input: z.object({}),
  output: z.object({
    notice: z.string(),
    groups: z.array(groupShape),
    total: z.number().describe(`how many groups there are; at most ${GROUPS_MAX} of them are listed`),
  }),
  run: async (_, context) => {
    const groups = await callPeer(context.shell, { method: 'groups', params: null })
    const contacts = await context.readContacts()
    const label = ({ id, name, owner, members }: GroupFacts) => ({
      id,
      name: visible(name),
      owner: labelPeer(owner, contacts),
      members: members.map((member) => labelPeer(member, contacts)),
    })
    return { content: { notice: NOTICE, groups: groups.slice(0, GROUPS_MAX).map(label), total: groups.length } }
  },
})

export const sendToGroup = tool({
  name: 'send_to_group',
  title: 'Send a message to a group',
  description:
    "Sends a text to every other member of a group, end-to-end encrypted. Succeeds when the broker has stored the message for each member. You can't recall a message.",
  effect: 'sends',
  input: z.object({
    group: z.string().min(1).max(64).describe('a name or an id from list_groups'),
    text: textShape,
    filePath: filePathShape,
    priority: priorityShape,
    ttlSeconds: ttlShape,
    confirm: confirmShape,
  }),
  output: z.object({
    group: z.object({ id: z.string(), name: z.string() }),
    bytes: z.number(),
    isStored: isStoredShape,
    envelopeId: z
      .string()
      .nullable()
      .describe('the id to pass to message_status, which reports every member; null: the message is not stored yet'),
    storedFor: z.number().describe('members'),
    refused: z
      .array(z.object({ to: peerShape, code: z.string() }))
      .describe('the members who do not receive the message, and why'),
  }),
  run: async ({ group: word, text, filePath, priority, ttlSeconds, confirm }, context) => {
    const said = await context.contentOf({ text, filePath })
    const group = findGroup(await callPeer(context.shell, { method: 'groups', params: null }), word)
    await checkMembers(group, context)
    const wishes = wishesFor(
      { wait: 'stored', timeout: 0, confirm },
      await countOf(context.shell, { peers: [], groups: [group] }),
    )
    const file = await said.upload(context.shell, { group: group.id })
    const terms = { priority, ttlSeconds, isKept: false, ...wishes, ...(file && { attachment: file.text }) }
    const params = { group: group.id, bodyBase64: base64Of(said), ...terms }
    const outcomes = await callPeer(context.shell, {
      method: 'sendToGroup',
      params,
      withinMs: STORED_WITHIN_MS,
    }).catch(nullIfKept)
    await file?.done()
    return {
      content: {
        ...(await summaryOf(outcomes, context)),
        group: { id: group.id, name: visible(group.name) },
        bytes: said.bytes,
      },
    }
  },
})

/** Checks the recipients. @throws OperatingError `recipient_not_allowed` */
export async function checkMembers({ members }: Pick<GroupFacts, 'members'>, context: ToolContext): Promise<void> {
  const own = await context.shell.profile.readOwnKey()
  for (const member of members) if (member !== own) await context.checkRecipient(member)
}

async function summaryOf(outcomes: readonly DeviceResult[] | null, context: ToolContext) {
  const contacts = await context.readContacts()
  const refused = (outcomes ?? []).flatMap(({ peer, code }) =>
    code === null ? [] : [{ to: labelPeer(peer, contacts), code }],
  )
  const envelopeId = outcomes?.find((outcome) => outcome.envelopeId !== null)?.envelopeId ?? null
  return { isStored: outcomes !== null, envelopeId, storedFor: (outcomes?.length ?? 0) - refused.length, refused }
}

/** Returns null if the profile has the message and sends it later; otherwise throws the error. */
function nullIfKept(error: Error & { code?: string }): null {
  if (error.code === 'unreachable' || error.code === 'kept_for_later') return null
  throw error
}
