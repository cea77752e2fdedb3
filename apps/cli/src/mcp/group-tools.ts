/** The tools for groups: `list_groups`, `send_to_group`. */
import { z } from 'zod'
import { findGroup, type GroupFacts, type MemberResult } from '../session/group-calls.ts'
import { callPeer } from '../session/peer-session.ts'
import { bodyOf, isStoredShape, priorityShape, STORED_WITHIN_MS, textShape, ttlShape } from './message-tools.ts'
import { labelPeer, NOTICE, peerShape, visible } from './peer-text.ts'
import { tool } from './tool.ts'
import type { ToolContext } from './tool-context.ts'

const GROUPS_MAX = 200

const groupShape = z.object({
  id: z.string(),
  name: z.string().describe('what its owner calls it'),
  owner: peerShape,
  members: z.array(peerShape),
})

export const listGroups = tool({
  name: 'list_groups',
  title: 'List groups',
  description:
    'Lists the groups you are in or own, and who gets what is sent to each: its members, as its owner signed them.',
  effect: 'looks',
  input: z.object({}),
  output: z.object({
    notice: z.string(),
    groups: z.array(groupShape),
    total: z.number().describe(`at most ${GROUPS_MAX} of them are listed`),
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
    'Sends a text to every other member of a group, end-to-end encrypted. Done when the broker has stored it for each. It can not be called back.',
  effect: 'sends',
  input: z.object({
    group: z.string().min(1).max(64).describe('a name or an id from list_groups'),
    text: textShape,
    priority: priorityShape,
    ttlSeconds: ttlShape,
  }),
  output: z.object({
    group: z.object({ id: z.string(), name: z.string() }),
    bytes: z.number(),
    isStored: isStoredShape,
    storedFor: z.number().describe('members'),
    refused: z.array(z.object({ to: peerShape, code: z.string() })).describe('members who do not get it, and why'),
  }),
  run: async ({ group: word, text, priority, ttlSeconds }, context) => {
    const body = bodyOf(text)
    const group = findGroup(await callPeer(context.shell, { method: 'groups', params: null }), word)
    await checkMembers(group, context)
    const terms = { priority, ttlSeconds, isKept: false }
    const params = { group: group.id, bodyBase64: body.toString('base64'), ...terms }
    const outcomes = await callPeer(context.shell, {
      method: 'sendToGroup',
      params,
      withinMs: STORED_WITHIN_MS,
    }).catch(nullIfKept)
    return {
      content: {
        ...(await summaryOf(outcomes, context)),
        group: { id: group.id, name: visible(group.name) },
        bytes: body.length,
      },
    }
  },
})

/** Who may write to some peers only may write to a group of these. @throws OperatingError `recipient_not_allowed` */
async function checkMembers({ members }: GroupFacts, context: ToolContext): Promise<void> {
  const own = (await context.shell.profile.readKeys()).identity.signing.publicKey
  for (const member of members) if (member !== own) await context.checkRecipient(member)
}

async function summaryOf(outcomes: readonly MemberResult[] | null, context: ToolContext) {
  const contacts = await context.readContacts()
  const refused = (outcomes ?? []).flatMap(({ peer, code }) =>
    code === null ? [] : [{ to: labelPeer(peer, contacts), code }],
  )
  return { isStored: outcomes !== null, storedFor: (outcomes?.length ?? 0) - refused.length, refused }
}

function nullIfKept(error: Error & { code?: string }): null {
  if (error.code === 'unreachable' || error.code === 'kept_for_later') return null
  throw error
}
