/** `sealpost dead`: for operators, deliveries that left their queues unsettled. It works on the database itself. */
import { type DeadLetterFilter, listDeadLetters, purgeDeadLetters, redriveDeadLetters } from '@sealpost/db'
import { PRIORITIES } from '@sealpost/protocol'
import type { DeliveryId } from '@sealpost/std'
import type { Command } from 'commander'
import { withDatabase } from '../operator-database.ts'
import type { Run } from '../shell.ts'
import { named } from './admin/words.ts'
import { type DeadLetterChoice, type DeadLetterSource, deadLetterCommand } from './dead-letters.ts'

export const deadCommand = (run: Run): Command => deadLetterCommand(run, inDatabase)

const filterOf = ({ ids, ...choice }: DeadLetterChoice): DeadLetterFilter => ({
  ...choice,
  ...(ids && { ids: ids as DeliveryId[] }),
})

const inDatabase: DeadLetterSource = {
  name: 'dead',
  description: 'for operators: dead letters, on the database itself; needs DATABASE_URL',
  limitMax: 100_000,
  list: async (shell, choice, limit) => {
    const letters = await withDatabase(shell, (db) => listDeadLetters(db, filterOf(choice), limit))
    return letters.map((letter) => ({
      ...letter,
      from: named(letter.senderName, letter.sender),
      to: named(letter.recipientName, letter.recipient),
      forPrograms: { ...letter, priority: PRIORITIES[letter.priority] },
    }))
  },
  redrive: (shell, choice, ttlSeconds) =>
    withDatabase(shell, async (db) => {
      const { refused, ...counts } = await redriveDeadLetters(db, filterOf(choice), { ttlSeconds })
      return { ...counts, refused: [...refused] }
    }),
  purge: (shell, choice) => withDatabase(shell, (db) => purgeDeadLetters(db, filterOf(choice))),
}
