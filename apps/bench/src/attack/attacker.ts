/** The attacker, as a program of its own with a low priority: its CPU is not the broker's, and must not slow it down. */
import { setPriority } from 'node:os'
import { ready } from '@sealpost/identity'
import type { Target } from './attack.ts'
import { attacks } from './attacks.ts'
import type { Member } from './stage.ts'

export interface AttackerOrder {
  /** Begins this attack. */
  readonly begin?: { readonly name: string; readonly target: Target; readonly members: readonly Member[] }
  readonly end?: true
}

/** What the broker answered, and how often; the whole of a turn. */
export interface AttackerAnswer {
  readonly answers: Readonly<Record<string, number>>
}

setPriority(10)
let turn: { readonly end: AbortController; readonly done: Promise<AttackerAnswer> } | undefined
process.on('disconnect', () => process.exit(0))
process.on('message', async ({ begin, end }: AttackerOrder) => {
  if (begin) turn = start(begin)
  if (end && turn) {
    turn.end.abort()
    process.send?.(await turn.done)
  }
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
