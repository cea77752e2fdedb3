/** One statement of `sql.ts`: its parameters as text, its rows as objects. */
import { arrayLiteral, type Database } from '@sealpost/pg'
import type { DeliveryRef } from '@sealpost/protocol'

export type Parameter = string | number | boolean
export type Row = Record<string, unknown>

export function run<R extends Row>(db: Database, statement: string, parameters: Parameter[]): Promise<R[]> {
  return db.run((sql) => sql.unsafe<R[]>(statement, parameters, { prepare: true }))
}

/** An array of numbers and hex ids, none of which needs quoting. */
export const arrayOf = (items: readonly (string | number | bigint | boolean)[]): string => `{${items.join()}}`

/** As the statements name deliveries: mesh, recipient, priority, id. */
export const keysOf = (deliveries: readonly DeliveryRef[]): string[] => [
  arrayOf(deliveries.map(({ meshId }) => meshId)),
  arrayOf(deliveries.map(({ recipient }) => recipient)),
  arrayOf(deliveries.map(({ priority }) => priority)),
  arrayOf(deliveries.map(({ id }) => id)),
]

/** The same with who holds them. */
export const heldBy = (all: readonly { delivery: DeliveryRef; epoch: number }[]): string[] => [
  ...keysOf(all.map(({ delivery }) => delivery)),
  arrayOf(all.map(({ epoch }) => epoch)),
  arrayLiteral(all.map(({ delivery }) => delivery.holder ?? null)),
]
