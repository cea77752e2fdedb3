/** Runs the attacker with a low priority, so that it does not slow the broker. */
import { setPriority } from 'node:os'
import { serveParent } from '@sealpost/harness/programs/child'
import { ready } from '@sealpost/identity'
import type { AttackTarget, StageMember } from './attack.ts'
import { attacks } from './members.ts'

export interface AttackerOrder {
  readonly begin?: { readonly name: string; readonly target: AttackTarget; readonly members: readonly StageMember[] }
  readonly end?: true
}

/** The broker's replies, with their numbers. */
export interface AttackerReply {
  readonly answers: Readonly<Record<string, number>>
}

setPriority(10)
let turn: { readonly end: AbortController; readonly done: Promise<AttackerReply> } | undefined
serveParent<AttackerOrder, AttackerReply>(async ({ begin, end }, reply) => {
  if (begin) turn = start(begin)
  if (!end || !turn) return
  turn.end.abort()
  reply(await turn.done)
})

function start({ name, target, members }: NonNullable<AttackerOrder['begin']>) {
  const end = new AbortController()
  const answers: Record<string, number> = {}
  const count = (answer: string | number) => {
    answers[answer] = (answers[answer] ?? 0) + 1
  }
  const attack = attacks.find((each) => each.name === name)!
  const done = ready()
    .then(() => attack.run({ target, members, signal: end.signal, count }))
    .then(() => ({ answers }))
  return { end, done }
}
