/** The attacks, each one row: `bun scripts/attack.ts --list`. A new one goes into a file by its kind, and into this table. */
import type { Attack } from './attack.ts'
import { fillingAttacks } from './filling.ts'
import { memberAttacks } from './members.ts'
import { unprovenAttacks } from './unproven.ts'

export const attacks: readonly Attack[] = [...unprovenAttacks, ...memberAttacks, ...fillingAttacks]
