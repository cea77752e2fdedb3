/** Combines the table of hostile inputs, and lists the files that test the others. */
import { attachmentRows } from './hostile-attachments.ts'
import { frameRows } from './hostile-frames.ts'
import { httpRows } from './hostile-http.ts'
import { identityRows } from './hostile-identity.ts'
import { mailRows } from './hostile-mail.ts'
import { upgradeRows } from './hostile-upgrade.ts'
import { valueRows } from './hostile-values.ts'

export const hostileInputs = [
  ...upgradeRows,
  ...frameRows,
  ...identityRows,
  ...mailRows,
  ...httpRows,
  ...attachmentRows,
  ...valueRows,
]

export const INPUTS = 99

/** Inputs outside the table, with the file whose test title begins with their number. */
export const elsewhere: Readonly<Record<string, string>> = {
  H18: 'apps/broker/src/test/limits.e2e.test.ts',
  H33: 'apps/broker/src/test/fault.e2e.test.ts',
  H44: 'apps/broker/src/test/enrol.e2e.test.ts',
  H45: 'apps/broker/src/test/succession.e2e.test.ts',
  H50: 'apps/broker/src/test/frames.e2e.test.ts',
  H54: 'apps/broker/src/test/limits.e2e.test.ts',
  H55: 'apps/broker/src/test/delivery.e2e.test.ts',
  H56: 'apps/broker/src/test/delivery.e2e.test.ts',
  H57: 'apps/broker/src/test/upgrade.e2e.test.ts',
  H58: 'apps/broker/src/server/unproven-connections.test.ts',
  H59: 'apps/broker/src/test/upgrade.e2e.test.ts',
  H62: 'apps/broker/src/test/frames.e2e.test.ts',
  H63: 'apps/broker/src/test/frames.e2e.test.ts',
  H65: 'packages/core/src/shards/hints.test.ts',
  H69: 'apps/broker/src/test/http-requests.e2e.test.ts',
  H76: 'apps/broker/src/test/fault.e2e.test.ts',
  H89: 'apps/broker/src/test/hostile-cost.e2e.test.ts',
  H92: 'apps/broker/src/test/delivery.e2e.test.ts',
  H93: 'apps/broker/src/test/delivery.e2e.test.ts',
  H95: 'packages/queue/src/test/races.pg.test.ts',
  H96: 'packages/queue/src/test/conformance-lease.ts',
}
