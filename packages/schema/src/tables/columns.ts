/** Column types that the tables share. */
import { bigint, customType, timestamp } from 'drizzle-orm/pg-core'

export const bytea = customType<{ data: Uint8Array }>({ dataType: () => 'bytea' })
export const instant = (name: string) => timestamp(name, { withTimezone: true })
export const count = (name: string) => bigint(name, { mode: 'number' })
