/** The attacks: `bun scripts/attack.ts --list`. Add a new attack to the file of its kind. */
import type { Attack } from './attack.ts'
import { memberAttacks } from './members.ts'
import { unprovenAttacks } from './unproven.ts'

export const attacks: readonly Attack[] = [...unprovenAttacks, ...memberAttacks]
