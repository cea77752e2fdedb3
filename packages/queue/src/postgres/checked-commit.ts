/** A batch of appends as the parameters of `COMMIT_CHECKED`, in text. */
import { arrayLiteral, byteaText, type PipelineStep } from '@sealpost/pg'
import type { Append } from '@sealpost/protocol'
import type { Millis } from '@sealpost/std'
import { COMMIT_CHECKED, KEEP_BODIES } from '../sql/sql.ts'
import { bodiesOf, fingerprintOf, Parties, secondOf } from './commit-batch.ts'
import { arrayOf } from './run.ts'
import type { CtidOf } from './shard-memory.ts'

/** The statement, and a reader of the marks' new places in its reply. */
export interface CheckedStep {
  readonly step: PipelineStep
  readMarks(text: string): CtidOf
}

export function checkedStep(appends: readonly Append[], dedupeMs: Millis): CheckedStep {
  const parties = new Parties()
  for (const [i, { meshId, sender }] of appends.entries()) parties.sent(meshId, sender, i)
  for (const { meshId, recipient } of appends) parties.find(meshId, recipient)
  const { all } = parties
  const places = new Map(all.map((party, i) => [party, i + 1])) // as Postgres counts
  const placeOf = (meshId: Append['meshId'], peer: Append['sender']) => places.get(parties.find(meshId, peer))!
  const senders = parties.sortedSenders()
  const idsOf = ({ sent }: (typeof senders)[number]) => sent.map((i) => appends[i]!.envelopeId)
  const step: PipelineStep = {
    text: COMMIT_CHECKED,
    parameters: [
      arrayOf(all.map((party) => party.meshId)),
      arrayOf(all.map((party) => party.peer)),
      arrayOf(appends.map((append) => placeOf(append.meshId, append.sender))),
      arrayOf(appends.map((append) => placeOf(append.meshId, append.recipient))),
      arrayOf(appends.map((append) => append.envelopeId)),
      arrayOf(appends.map((append) => secondOf(append.envelopeId))),
      arrayOf(appends.map((append) => append.priority)),
      arrayOf(appends.map((append) => append.ttlSeconds)),
      arrayOf(appends.map(fingerprintOf)),
      arrayOf(startsOf(appends)),
      arrayOf(appends.map((append) => append.envelope.length)),
      byteaText(Buffer.concat(appends.map((append) => append.envelope))),
      String(dedupeMs / 1000),
      arrayOf(senders.map((sender) => places.get(sender)!)),
      arrayOf(senders.map((sender) => idsOf(sender).sort().at(-1)!)),
      arrayLiteral(appends.map((append) => append.terms)),
      arrayOf(appends.map((append) => append.notBeforeMs)),
      arrayLiteral(appends.map(({ body }) => body && byteaText(body.bodyId))),
    ],
  }
  const readMarks = (text: string): CtidOf => {
    const words = text.split(' ')
    const byPlace = new Map(words.map((word, i) => [Number(word), words[i + 1]]))
    return (meshId, sender) => byPlace.get(placeOf(meshId, sender))
  }
  return { step, readMarks }
}

/** What keeps the shared bodies of these, before they are named. */
export function bodySteps(appends: readonly Append[]): PipelineStep[] {
  const bodies = bodiesOf(appends)
  if (bodies.length === 0) return []
  const parameters = [
    arrayOf(bodies.map(({ meshId }) => meshId)),
    arrayOf(bodies.map(({ sender }) => sender)),
    arrayLiteral(bodies.map(({ body }) => byteaText(body.bodyId))),
    arrayLiteral(bodies.map(({ body }) => body.bytes)),
    arrayLiteral(bodies.map(({ body }) => (body.readers ? `{${body.readers.join()}}` : null))),
  ]
  return [{ text: KEEP_BODIES, parameters }]
}

/** Where each envelope begins in all of them, counted from 1. */
function startsOf(appends: readonly Append[]): number[] {
  let next = 1
  return appends.map(({ envelope }) => {
    next += envelope.length
    return next - envelope.length
  })
}
