/** The table of hostile inputs, in its parts. */
import { frameRows } from './testing-hostile-frames.ts'
import { upgradeRows } from './testing-hostile-upgrade.ts'

export const hostileInputs = [...upgradeRows, ...frameRows]
