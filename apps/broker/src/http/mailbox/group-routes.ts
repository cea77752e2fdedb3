import { createRoute, z } from '@hono/zod-openapi'
import { groupFields } from '@sealpost/identity'
import type { Database } from '@sealpost/pg'
import { FANOUT_MAX, GROUP_PAGE_MAX } from '@sealpost/protocol'
import { assert, GROUP_EPOCH_LAST, type GroupId, type MeshId, type PeerKey } from '@sealpost/std'
import { findGroups, type GroupRow, listGroups } from '@sealpost/store'
import { body, hex, json, type ObjectSchema, schemaOfField, schemaOfFrame, security } from '../json-schema.ts'
import { refusals, Sent, sendSchema, wire } from '../route-parts.ts'
import type { TokenHolder } from '../tokens.ts'
import { BROADCAST_DEFAULTS } from './send.ts'

/** Returns the schema of a broadcast, whose terms have defaults and apply to all envelopes. */
function broadcastSchema(): ObjectSchema {
  const whole = schemaOfFrame('broadcast', { optional: Object.keys(BROADCAST_DEFAULTS) })
  const { required: _, ...terms } = whole.properties.terms!
  const envelopes = { type: 'array', items: sendSchema(), minItems: 1, maxItems: FANOUT_MAX } as const
  return { ...whole, properties: { ...whole.properties, terms, envelopes } }
}

const Group = z
  .object({
    group: hex(16),
    epoch: z.int().min(1),
    owner: hex(32),
    name: z.string(),
    members: z.array(hex(32)),
    statement: wire(schemaOfField('setGroup', 'statement')),
  })
  .openapi('Group')

export const broadcast = createRoute({
  method: 'post',
  path: '/v1/broadcast',
  summary: 'Send one sealed body to several peers, with an envelope for each that contains its key',
  security,
  request: { body: body(wire(broadcastSchema()).openapi('Broadcast')) },
  responses: {
    200: json(Sent, 'The result of each envelope, in the order of the request.'),
    ...refusals('body_malformed', 'token_invalid'),
  },
})

export const groups = createRoute({
  method: 'get',
  path: '/v1/groups',
  summary: 'List the groups that this peer belongs to or owns',
  security,
  request: { query: z.strictObject({ after: hex(16).default('0'.repeat(32)) }) },
  responses: {
    200: json(
      z.object({ groups: z.array(Group).max(GROUP_PAGE_MAX), isLast: z.boolean() }).openapi('Groups'),
      'The groups after `after`, ordered by id.',
    ),
    ...refusals('query_malformed', 'token_invalid'),
  },
})

export const rosters = createRoute({
  method: 'post',
  path: '/v1/rosters',
  summary: 'Look up groups of the mesh, with their members',
  security,
  request: {
    body: body(z.strictObject({ groups: z.array(hex(16)).min(1).max(GROUP_PAGE_MAX) }).openapi('RosterQuery')),
  },
  responses: {
    200: json(
      z.object({ groups: z.array(Group), unknown: z.array(hex(16)) }).openapi('Rosters'),
      "The groups that exist, and the requested ids that don't exist or have ended.",
    ),
    ...refusals('body_malformed', 'token_invalid'),
  },
})

export interface GroupJson {
  readonly group: GroupId
  readonly epoch: number
  readonly owner: PeerKey
  readonly name: string
  readonly members: PeerKey[]
  readonly statement: string
}

export class GroupRosters {
  private readonly db: Database

  constructor(db: Database) {
    this.db = db
  }

  async listOf({ meshId, peerKey }: TokenHolder, after: GroupId): Promise<{ groups: GroupJson[]; isLast: boolean }> {
    const found = await listGroups(this.db, meshId, { after, limit: GROUP_PAGE_MAX + 1, naming: peerKey })
    return { groups: found.slice(0, GROUP_PAGE_MAX).map(groupJson), isLast: found.length <= GROUP_PAGE_MAX }
  }

  async lookup(meshId: MeshId, asked: readonly GroupId[]): Promise<{ groups: GroupJson[]; unknown: GroupId[] }> {
    const groups = (await findGroups(this.db, meshId, [...new Set(asked)])).filter(isGoingOn).map(groupJson)
    const known = new Set(groups.map(({ group }) => group))
    return { groups, unknown: asked.filter((group) => !known.has(group)) }
  }
}

const isGoingOn = ({ epoch }: GroupRow): boolean => epoch < GROUP_EPOCH_LAST

function groupJson({ statement }: GroupRow): GroupJson {
  const group = groupFields(statement)
  assert(group, 'a stored statement was validated when it arrived')
  const { groupId, epoch, owner, name, members } = group
  return { group: groupId, epoch, owner, name, members: [...members], statement: base64url(statement) }
}

const base64url = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url')
