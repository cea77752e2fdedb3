/** The table of hostile inputs, in its parts. */
import { frameRows } from './testing-hostile-frames.ts'
import { httpRows } from './testing-hostile-http.ts'
import { identityRows } from './testing-hostile-identity.ts'
import { mailRows } from './testing-hostile-mail.ts'
import { upgradeRows } from './testing-hostile-upgrade.ts'
import { valueRows } from './testing-hostile-values.ts'

export const hostileInputs = [...upgradeRows, ...frameRows, ...identityRows, ...mailRows, ...httpRows, ...valueRows]
