/** Reports to a sender where its messages are, and whether their recipients are there. */
import { createRoute, z } from '@hono/zod-openapi'
import type { Driver } from '@sealpost/driver'
import type { Database } from '@sealpost/pg'
import { AVAILABILITIES } from '@sealpost/protocol'
import type { EnvelopeId, MeshId } from '@sealpost/std'
import { findSent, type SentDelivery } from '@sealpost/store'
import { body, hex, json, security } from '../json-schema.ts'
import { refusals } from '../route-parts.ts'
import type { TokenHolder } from '../tokens.ts'

const SENT_MAX = 64
const time = (description: string) => z.number().nullable().openapi({ description })

const SentMessage = z
  .object({
    envelopeId: hex(16),
    status: z.enum(['delayed', 'waiting', 'pushed', 'dead', 'gone', 'unknown']).openapi({
      description:
        '`gone`: no longer in the queue, because it was settled, or an operator has removed or redriven it; `unknown`: this peer did not send it, or the broker has forgotten it, which it does a day after the delivery has ended',
    }),
    recipient: hex(32).nullable(),
    enqueuedAtMs: time('when the broker stored it; null if it is no longer in the queue'),
    expiresAtMs: time('when it expires'),
    dueAtMs: time('when the delay or the pause after a failed attempt ends'),
    failedAttempts: z.int(),
    failedAttemptsMax: z
      .int()
      .openapi({ description: 'the number of failed attempts after which it is a dead letter' }),
    death: z.enum(['expired', 'strikes', 'rejected']).nullable(),
    diedAtMs: time('when it became a dead letter'),
    presence: z
      .object({
        isOnline: z.boolean(),
        availability: z.enum(AVAILABILITIES),
        offlineSinceMs: time('when the last session ended, if the broker remembers it'),
        connectedAtMs: time('when the last session began'),
      })
      .nullable()
      .openapi({ description: 'the presence of the recipient, as every member can watch it' }),
  })
  .openapi('SentMessage')

export const sent = createRoute({
  method: 'post',
  path: '/v1/sent',
  summary: 'Ask where sent messages are',
  security,
  request: { body: body(z.strictObject({ envelopeIds: z.array(hex(16)).min(1).max(SENT_MAX) }).openapi('SentQuery')) },
  responses: {
    200: json(z.object({ messages: z.array(SentMessage) }).openapi('SentMessages'), 'One item for each id, in order.'),
    ...refusals('body_malformed', 'token_invalid'),
  },
})

export type SentMessageJson = z.infer<typeof SentMessage>

interface Parts {
  readonly db: Database
  readonly driver: Driver
  readonly failedAttemptsMax: number
}

export class SentMessages {
  private readonly parts: Parts

  constructor(parts: Parts) {
    this.parts = parts
  }

  /** @throws DatabaseError */
  async find(sender: TokenHolder, ids: readonly EnvelopeId[]): Promise<SentMessageJson[]> {
    const { db, driver } = this.parts
    const [deliveries] = await Promise.all([findSent(db, sender, ids), presenceKnown(driver, sender.meshId)])
    const found = new Map(deliveries.map((delivery) => [delivery.envelopeId, delivery]))
    return ids.map((id) => this.report(sender.meshId, id, found.get(id)))
  }

  private report(meshId: MeshId, envelopeId: EnvelopeId, delivery: SentDelivery | undefined): SentMessageJson {
    const { failedAttemptsMax } = this.parts
    if (!delivery) return { ...UNKNOWN, envelopeId, failedAttemptsMax }
    const { connectedAtMs, ...facts } = delivery
    return { ...facts, failedAttemptsMax, presence: this.presenceOf(meshId, delivery) }
  }

  private presenceOf(meshId: MeshId, { recipient, connectedAtMs }: SentDelivery): SentMessageJson['presence'] {
    const { isOnline, availability, offlineForMs } = this.parts.driver.engine.presence.find(meshId, recipient)
    const offlineSinceMs = offlineForMs === null ? null : Date.now() - offlineForMs
    return { isOnline, availability, offlineSinceMs, connectedAtMs }
  }
}

const UNKNOWN = {
  status: 'unknown' as const,
  failedAttempts: 0,
  recipient: null,
  enqueuedAtMs: null,
  expiresAtMs: null,
  dueAtMs: null,
  death: null,
  diedAtMs: null,
  presence: null,
}

/** Resolves when the other shards have had time to report who is online. */
const presenceKnown = (driver: Driver, meshId: MeshId): Promise<void> =>
  new Promise((resolve) => driver.step(() => driver.engine.presence.whenMeshKnown(meshId, resolve)))
