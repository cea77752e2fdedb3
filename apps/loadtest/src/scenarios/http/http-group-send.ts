/**
 * This scenario sends messages to a group over HTTP at a steady rate. Each message is sealed once and sent in one
 * request for all members.
 */

import {
  base64url,
  type HttpSender,
  type HttpSendOutcome,
  newEnvelopeId,
  postJson,
  type SendReply,
} from '@sealpost/harness/members/http-peers'
import { identityOf } from '@sealpost/harness/members/mesh'
import { atRate } from '@sealpost/harness/programs/pace'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { Latencies } from '@sealpost/harness/report/latencies'
import { count, figure } from '@sealpost/harness/report/text'
import { type KeyBinding, sealBody, sealEnvelope } from '@sealpost/identity'
import { clockMs, connect } from '@sealpost/sdk'
import { groupsOf } from '@sealpost/sdk/groups'
import { type GroupId, OperatingError } from '@sealpost/std'
import type { RunContext } from '../../run/run.ts'
import {
  Effort,
  type Findings,
  generatorCheck,
  latencyCheck,
  latencySheet,
  mailCheck,
  type Scenario,
  secondsFor,
  sizeOf,
} from '../scenario.ts'
import { failuresOf, HttpStage, type Ledger, soundCheck } from './stage.ts'

const SENDERS = 5
const PER_SECOND = 10
const P95_MS_MAX = 300
const LATE_MS = 15_000
/** The maximum number of recipients in a group of 256. */
const MEMBERS_MAX = 255

export const httpGroupSend: Scenario = {
  name: 'http-group-send',
  summary: `5 peers send ${PER_SECOND} messages per second over HTTP, each to a group of 50 others, for a minute`,
  bar: `none lost, p95 ≤ ${P95_MS_MAX} ms`,
  reported: null,
  run,
}

async function run(context: RunContext, teardown: Teardown): Promise<Findings> {
  const { target, display } = context
  const full = { peers: 50, seconds: Math.max(60, secondsFor(95, PER_SECOND)) }
  const { peers, seconds } = sizeOf(context, full, { peers: 20, seconds: 5 })
  const members = Math.min(peers, MEMBERS_MAX)
  const size = { listeners: members, senders: SENDERS, others: 1, isToAll: true }
  const stage = await HttpStage.open(context, size, teardown)
  display.step(`${SENDERS} groups of ${members} members and their sender`)
  const crew = new BroadcastCrew(stage, await Promise.race([createGroups(context, stage), target.failed]))
  await crew.exchange()
  display.step(`${PER_SECOND} messages per second for ${seconds} s`)
  const effort = new Effort()
  const { startMs } = crew.begin()
  const sending = atRate({ startMs, perSecond: PER_SECOND, until: seconds }, (turn, dueAtMs) =>
    crew.send(turn % SENDERS, dueAtMs),
  )
  const messages = await Promise.race([sending, target.failed])
  await crew.ledger.until(crew.ledger.sent, LATE_MS)
  return findingsOf(crew, { members, messages, seconds, share: effort.share })
}

/** A group as the broker lists it. */
interface ListedGroup {
  readonly group: GroupId
  readonly epoch: number
}

/** Creates a group of all listeners per sender, owned by another member. */
async function createGroups(
  { target }: RunContext,
  { mesh, listeners, others, senders }: HttpStage,
): Promise<ListedGroup[]> {
  const identity = identityOf(others.secrets[0]!)
  const owner = await connect({ ...target.shards[0]!, meshId: mesh.meshId, identity })
  const groups: ListedGroup[] = []
  for (const [i, sender] of senders.entries()) {
    const members = [...mesh.peerKeys.slice(0, listeners.count), mesh.peerKeys[listeners.count + i]!]
    const { id } = await groupsOf(owner).create(`by HTTP ${i + 1}`, members)
    groups.push(await listedGroup(sender, id as GroupId))
  }
  await owner.close()
  return groups
}

/** Returns a group from the broker's list. @throws OperatingError `no_group` */
async function listedGroup({ url, token }: HttpSender, group: GroupId): Promise<ListedGroup> {
  const response = await fetch(`${url}/v1/groups`, { headers: { authorization: `Bearer ${token}` } })
  const { groups = [] } = (await response.json()) as { readonly groups?: readonly ListedGroup[] }
  const listed = groups.find((each) => each.group === group)
  if (!listed) throw new OperatingError('no_group', 'The broker does not list the group for its member.')
  return listed
}

/** Sends to the group. Never rejects. @returns each member's outcome */
async function broadcast(
  { sealer, url, token }: HttpSender,
  { group, epoch }: ListedGroup,
  { to, body }: { readonly to: readonly KeyBinding[]; readonly body: Uint8Array },
): Promise<HttpSendOutcome[]> {
  const sealed = sealBody(body)
  const common = { stream: null, sentAtMs: Date.now(), note: { group, groupEpoch: epoch }, body: sealed.ticket }
  const envelopes = to.map((member) => {
    const envelopeId = newEnvelopeId()
    const envelope = sealEnvelope(sealer, { to: member, envelopeId, ...common })
    return { envelopeId, recipient: member.peerKey, envelope: base64url(envelope) }
  })
  const request = { group, rosterEpoch: epoch, bodyId: sealed.bodyId, body: base64url(sealed.bytes), envelopes }
  const headers = { authorization: `Bearer ${token}` }
  try {
    const { results, code } = (await postJson(`${url}/v1/broadcast`, request, headers)) as SendReply
    if (results) return results.map((each) => (each.status === 'refused' ? (each.code ?? 'refused') : each.status))
    return to.map(() => code ?? 'no_answer')
  } catch {
    return to.map(() => 'connection_lost')
  }
}

/** Sends broadcasts. In the ledger, each has a number per member. */
class BroadcastCrew {
  /** The time from a message's due time until it was stored for all. */
  storedMs = new Latencies()
  readonly #stage: HttpStage
  readonly #groups: readonly ListedGroup[]

  constructor(stage: HttpStage, groups: readonly ListedGroup[]) {
    this.#stage = stage
    this.#groups = groups
  }

  get ledger(): Ledger {
    return this.#stage.ledger
  }

  get dropped(): number {
    return this.#stage.listeners.dropped
  }

  begin(): { readonly startMs: number } {
    this.storedMs = new Latencies()
    return this.#stage.begin()
  }

  /** Sends first messages, whose cost must not count. */
  async exchange(): Promise<void> {
    this.begin()
    for (let sender = 0; sender < this.#groups.length; sender++) await this.send(sender, clockMs())
    await this.ledger.until(this.ledger.sent, LATE_MS)
  }

  async send(sender: number, dueAtMs: number): Promise<void> {
    const { ledger, storedMs } = this
    const members = this.#stage.listeners.count
    const numbers = Array.from({ length: members }, () => ledger.due(dueAtMs))
    const body = this.#stage.body(numbers[0]! / members)
    const to = this.#stage.mesh.bindings.slice(0, members)
    const outcomes = await broadcast(this.#stage.senders[sender]!, this.#groups[sender]!, { to, body })
    const atMs = clockMs()
    for (const [i, outcome] of outcomes.entries()) {
      if (outcome === 'stored') ledger.answered(numbers[i]!, atMs)
      else ledger.failed(outcome)
    }
    if (outcomes.every((outcome) => outcome === 'stored')) storedMs.note(atMs - dueAtMs)
  }
}

interface BroadcastShape {
  readonly members: number
  readonly messages: number
  readonly seconds: number
  readonly share: number
}

function findingsOf(crew: BroadcastCrew, { members, messages, seconds, share }: BroadcastShape): Findings {
  const { storedMs, ledger, dropped } = crew
  const [p95, pushP95] = [storedMs.at(95), ledger.e2e.at(95)]
  const deliveries = `${count(ledger.delivered)} of ${count(ledger.sent)} deliveries`
  const rate = `${count(ledger.sent / seconds)} deliveries per second`
  const isComplete = ledger.delivered === ledger.sent && ledger.failedCount === 0
  return {
    headline: `${count(messages)} messages to ${count(members)} members each: ${deliveries}, stored in p95 ${figure(p95)} ms`,
    shown: `${deliveries}, p95 ${figure(p95)} ms`,
    sheets: [
      latencySheet([
        ['due → stored for all', storedMs],
        ['due → push to a member', ledger.e2e],
      ]),
    ],
    facts: [
      ['shape', `${SENDERS} senders, ${PER_SECOND} messages per second in total: ${rate}`],
      ['failed', failuresOf(ledger)],
    ],
    checks: [
      mailCheck(isComplete, `Every member received every message (${deliveries}).`),
      soundCheck(ledger.isSound),
      mailCheck(dropped === 0, 'No member was disconnected.'),
      latencyCheck(storedMs, { percent: 95, maxMs: P95_MS_MAX, of: 'messages, due → stored,' }),
      latencyCheck(ledger.e2e, { percent: 95, maxMs: P95_MS_MAX, of: 'deliveries, due → push,' }),
      generatorCheck(share),
    ],
    graphs: [ledger.graph],
    figures: {
      ...{ messages, deliveries: ledger.sent, delivered: ledger.delivered, failed: ledger.failedCount },
      ...{ storedMsP50: storedMs.at(50), storedMsP95: p95, e2eMsP95: pushP95 },
      generatorShare: share,
    },
  }
}
