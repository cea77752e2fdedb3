import type { Space } from '@sealpost/history'
import { fromBase64url, type MeshId, type Micros, type PeerKey, type SpaceId, toBase64url } from '@sealpost/std'
import type { HttpApi } from '../http/route-parts.ts'
import { type HttpRefusal, isRefused, refuse, type TokenHolder } from '../http/tokens.ts'
import * as routes from './http-routes.ts'
import type { SpaceRequests, WriteOutcome } from './space-requests.ts'

export function addSpaces(app: HttpApi, requests: SpaceRequests): void {
  app.openapi(routes.putSpace, async (c) => {
    const statement = bytesOf(c.req.valid('json').statement)
    const put = statement ? await requests.put(c.var.holder, placeOf(c.req.valid('param')), statement) : MALFORMED
    return isRefused(put) ? refuse(c, put) : c.json(put, 200)
  })
  app.openapi(routes.getSpace, async (c) => {
    const space = await requests.open(c.var.holder, placeOf(c.req.valid('param')))
    return isRefused(space) ? refuse(c, space) : c.json(await spaceJson(requests, c.var.holder, space), 200)
  })
  app.openapi(routes.spaceMembers, async (c) => {
    const space = await requests.open(c.var.holder, placeOf(c.req.valid('param')))
    if (isRefused(space)) return refuse(c, space)
    return c.json(await requests.members(space, c.req.valid('query').after as PeerKey, routes.MEMBERS_MAX), 200)
  })
  addGrants(app, requests)
  app.openapi(routes.postEntries, async (c) => {
    const entries = allBytesOf(c.req.valid('json').entries)
    if (!entries) return refuse(c, MALFORMED)
    const space = await requests.open(c.var.holder, placeOf(c.req.valid('param')))
    if (isRefused(space)) return refuse(c, space)
    const outcomes = await requests.write(c.var.holder, space, entries)
    return isRefused(outcomes) ? refuse(c, outcomes) : c.json({ outcomes: outcomes.map(outcomeJson) }, 200)
  })
}

function addGrants(app: HttpApi, requests: SpaceRequests): void {
  app.openapi(routes.putGrants, async (c) => {
    const { grants, ...epochs } = c.req.valid('json')
    const boxes = allBytesOf(grants.map(({ box }) => box))
    if (!boxes) return refuse(c, MALFORMED)
    const space = await requests.open(c.var.holder, placeOf(c.req.valid('param')))
    if (isRefused(space)) return refuse(c, space)
    const sealed = grants.map(({ peer }, i) => ({ peer: peer as PeerKey, box: boxes[i]! }))
    const stood = await requests.grant(c.var.holder, space, { ...epochs, grants: sealed })
    if (stood === epochs.expects) return c.json({ keyEpoch: epochs.keyEpoch }, 200)
    return c.json({ code: 'stale_epoch' as const, keyEpoch: stood }, 409)
  })
  app.openapi(routes.endGrant, async (c) => {
    const { keyEpoch, ...named } = c.req.valid('param')
    const space = await requests.open(c.var.holder, placeOf(named))
    if (isRefused(space)) return refuse(c, space)
    const key = { ...placeOf(named), keyEpoch }
    if (c.req.valid('query').replace === 'true') await requests.grants.discard(c.var.holder, key)
    else await requests.grants.markFetched(c.var.holder, key)
    return c.body(null, 204)
  })
}

const MALFORMED: HttpRefusal = { code: 'body_malformed' }

const placeOf = ({ mesh, space }: { mesh: string; space: string }) => ({
  meshId: mesh as MeshId,
  spaceId: space as SpaceId,
})

async function spaceJson(requests: SpaceRequests, holder: TokenHolder, space: Space) {
  const [needs, grants] = await Promise.all([
    requests.spaces.findGrantNeeds(space, routes.MEMBERS_MAX),
    requests.grants.list(holder, space),
  ])
  const { keyEpoch, lastSeq, entries, entryBytes, historyBytes } = space
  return {
    statement: toBase64url(space.statement),
    ...{ keyEpoch, lastSeq, entries, entryBytes, historyBytes },
    lastAt: space.lastAt === null ? null : instantOf(space.lastAt),
    horizon: horizonOf(space),
    memberCount: needs.memberCount,
    departed: needs.departed,
    lacking: [...needs.lacking],
    grants: grants.map(({ box, ...grant }) => ({ ...grant, box: toBase64url(box) })),
  }
}

/** Returns the time before which nothing can be read. */
function horizonOf({ now, keptSince, keepSeconds }: Space): string | null {
  return keptSince === null ? null : instantOf(Math.max(keptSince, now - keepSeconds * 1e6))
}

const instantOf = (at: Micros): string => {
  const millis = Math.floor(at / 1000)
  return `${new Date(millis).toISOString().slice(0, -1)}${String(at - millis * 1000).padStart(3, '0')}Z`
}

function outcomeJson(outcome: WriteOutcome) {
  switch (outcome.status) {
    case 'done':
      return { outcome: outcome.status, seq: outcome.seq, at: instantOf(outcome.at) }
    case 'conflict':
      return { outcome: outcome.status, entry: outcome.standing && toBase64url(outcome.standing) }
    case 'away':
      return { outcome: 'busy' as const }
    default:
      return { outcome: outcome.status }
  }
}

function bytesOf(text: string): Uint8Array | null {
  try {
    return fromBase64url(text)
  } catch {
    return null
  }
}

function allBytesOf(texts: readonly string[]): Uint8Array[] | null {
  const all = texts.flatMap((text) => bytesOf(text) ?? [])
  return all.length === texts.length ? all : null
}
