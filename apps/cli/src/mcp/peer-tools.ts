/** The tool `list_peers`. */
import { fingerprint } from '@sealpost/identity'
import { AVAILABILITIES, SUMMARY_MAX } from '@sealpost/protocol'
import { z } from 'zod'
import { knownAs } from '../members/peers.ts'
import { callPeer } from '../session/peer-session.ts'
import { NOTICE, visible } from './peer-text.ts'
import { tool } from './tool.ts'

const PEERS_MAX = 200

const entry = z.object({
  name: z.string(),
  key: z.string(),
  fingerprint: z.string(),
  role: z.string(),
  known: z
    .string()
    .describe('you · yes: the key this profile pinned · empty: never met · CHANGED: another key, beware'),
})

export const listPeers = tool({
  name: 'list_peers',
  title: 'List peers',
  description:
    'Lists the members of the mesh: the peers that messages can be sent to. A name is what a peer calls itself; its key is who it is.',
  effect: 'looks',
  input: z.object({
    nameContains: z.string().max(64).optional().describe('only peers whose name contains this'),
  }),
  output: z.object({
    notice: z.string(),
    peers: z.array(entry),
    total: z.number().describe(`how many match; at most ${PEERS_MAX} of them are listed`),
  }),
  run: async ({ nameContains = '' }, context) => {
    const members = await callPeer(context.shell, { method: 'members', params: null })
    const contacts = await context.readContacts()
    const own = (await context.shell.profile.readKeys()).identity.signing.publicKey
    const found = members.filter(({ name }) => name.includes(nameContains))
    const peers = found.slice(0, PEERS_MAX).map((member) => ({
      name: visible(member.name),
      key: member.peer,
      fingerprint: fingerprint(member.peer),
      role: member.role,
      known: knownAs(member, contacts, own),
    }))
    return { content: { notice: NOTICE, peers, total: found.length } }
  },
})

export const setStatus = tool({
  name: 'set_status',
  title: 'Set your status',
  description:
    'Says to the mesh what you are at, until you say something else or this server ends. With dnd only mail that was sent as urgent comes; the rest waits at the broker.',
  effect: 'tells',
  input: z.object({
    availability: z.enum(AVAILABILITIES),
    summary: z
      .string()
      .max(SUMMARY_MAX)
      .default('')
      .describe('in plain ASCII, for peers who look; the broker reads it, so nothing that is secret'),
  }),
  output: z.object({ availability: z.string(), summary: z.string() }),
  run: async ({ availability, summary }, context, signal) => {
    if (summary !== '') context.checkEverybody()
    const { peer } = await context.session(signal)
    peer.setStatus({ availability, summary })
    return { content: { availability, summary } }
  },
})
