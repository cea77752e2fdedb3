/**
 * Runs the host of a member's sessions, without a session of its own, as a separate program with a clock that a test
 * advances. Each line of stdin is a number of milliseconds.
 *     bun host-process.ts KEY-FILE FOLDER
 */
import { writeSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { createInterface } from 'node:readline'
import { readKeyFile } from '@sealpost/identity/key-file'
import { openPeer } from '../client.ts'
import { clockMs } from '../driver.ts'
import { startMailboxHost } from '../sessions/mailbox-host.ts'
import { sessionsFolderOf } from '../sessions/mailbox-link.ts'

const [keyFile, folder] = process.argv.slice(2) as [string, string]
const { contents } = await readKeyFile(keyFile)
if (contents.kind !== 'peer' || !contents.enrolment) throw new Error('a key file of an enrolled peer is needed')
const { identity, enrolment } = contents
const { authority, ...place } = enrolment
const open = { url: `ws://${authority}`, ...place, credit: 256 }
let aheadMs = 0
await mkdir(sessionsFolderOf(folder), { recursive: true, mode: 0o700 })
await startMailboxHost({
  folder,
  isForPools: false,
  openSlotPeer: ({ keys }, store) => openPeer({ ...open, identity: keys.identity, store }),
  slotRevoked: async () => undefined,
  openMember: (store) => openPeer({ ...open, identity, store }),
  begun: async () => undefined,
  now: () => clockMs() + aheadMs,
})
writeSync(1, `${JSON.stringify({ hosts: folder })}\n`)
createInterface(process.stdin).on('line', (line) => {
  aheadMs += Number(line)
})
