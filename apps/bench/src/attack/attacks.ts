/** The attacks: `bun scripts/attack.ts --list`. A new one goes into the file of its kind. */
import type { Attack } from './attack.ts'
import { memberAttacks } from './members.ts'
import { unprovenAttacks } from './unproven.ts'

export const attacks: readonly Attack[] = [...unprovenAttacks, ...memberAttacks]
