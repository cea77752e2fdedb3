/** `sealpost admin dead`: dead letters by the operators' interface of a broker. */
import * as shapes from '@sealpost/operator'
import type { Command } from 'commander'
import { askAdmin } from '../../admin-call.ts'
import type { Run } from '../../shell.ts'
import { type DeadLetterChoice, type DeadLetterSource, deadLetterCommand } from '../dead-letters.ts'
import { named } from './words.ts'

export const adminDeadCommand = (run: Run): Command => deadLetterCommand(run, byBroker)

const bodyOf = (choice: DeadLetterChoice) => ({ ...choice, ...(choice.ids === undefined && { all: true }) })

const byBroker: DeadLetterSource = {
  name: 'admin dead',
  description: 'dead letters, by the operators’ interface of a broker',
  limitMax: 1000,
  list: async (shell, { ids: _, ...query }, limit) => {
    const request = { path: '/dead-letters', answer: shapes.DeadLetters, query: { ...query, limit } }
    const { deadLetters } = await askAdmin(shell, request)
    return deadLetters.map((letter) => ({
      ...letter,
      from: named(letter.senderName, letter.sender),
      to: named(letter.recipientName, letter.recipient),
      forPrograms: letter,
    }))
  },
  redrive: (shell, choice, ttlSeconds) => {
    const body = { ...bodyOf(choice), ttlSeconds }
    return askAdmin(shell, { path: '/dead-letters/redrive', answer: shapes.Redriven, body })
  },
  purge: async (shell, choice) => {
    const request = { path: '/dead-letters/purge', answer: shapes.Purged, body: bodyOf(choice) }
    return (await askAdmin(shell, request)).purged
  },
}
