/** The script's end of a generator: a program of its own beside it, or one on another machine (`remote.ts`). */
import { join } from 'node:path'
import { Child } from '@sealpost/harness/programs/child'
import { receiptsFile, sendsFile } from './journal.ts'
import type { Answer, Order } from './orders.ts'

/** The files of a generator's records, and how far the clock they were written by is ahead of ours. */
export interface Records {
  readonly prefix: string
  readonly aheadMs: number
}

export const filesOf = ({ prefix }: Pick<Records, 'prefix'>) => [sendsFile(prefix), receiptsFile(prefix)] as const

export interface Link {
  /** What to call it in an error. */
  readonly name: string
  readonly died: Promise<never>
  readonly aheadMs: number
  send(order: Order): void
  onReply(take: (answer: Answer) => void): void
  /** The next answer of this kind, or the error of its death. */
  nextReply<A extends Answer>(isWanted: (answer: Answer) => answer is A): Promise<A>
  /** Brings its records to this machine, under the names it was told. */
  fetchRecords(prefix: string): Promise<void>
  stop(): Promise<void>
  kill(): void
}

export class LocalGenerator extends Child<Order, Answer> implements Link {
  readonly aheadMs = 0

  constructor(name: string, words: readonly string[] = []) {
    super(name, join(import.meta.dirname, 'generator.ts'), words)
  }

  async fetchRecords(): Promise<void> {
    // they are here
  }
}
