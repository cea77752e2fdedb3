/**
 * Runs a session as a separate program that end-to-end tests can kill. It reports events as lines of JSON
 * (`SessionTold`).
 *     bun session-process.ts KEY-FILE FOLDER [NAME]
 *
 * The handler settles each message after some turns of the event loop. It never ends for the text `stuck`.
 */
import { writeSync } from 'node:fs'
import { setImmediate } from 'node:timers/promises'
import { readKeyFile } from '@sealpost/identity/key-file'
import { openSession } from '../sessions/session.ts'

export type SessionTold =
  | { readonly opened: string }
  | { readonly key: string }
  | { readonly hosts: string }
  | { readonly begun: string }
  /** The outcome of the message is stored. */
  | { readonly stored: string }

/** Writes synchronously, because the process may be killed next. */
function tell(told: SessionTold): void {
  writeSync(1, `${JSON.stringify(told)}\n`)
}

const [keyFile, folder, as] = process.argv.slice(2) as [string, string, string | undefined]
const { contents } = await readKeyFile(keyFile)
if (contents.kind !== 'peer' || !contents.enrolment) throw new Error('a key file of an enrolled peer is needed')
const { authority, ...enrolment } = contents.enrolment
const session = await openSession({
  ...{
    url: `ws://${authority}`,
    ...enrolment,
    folder,
    member: { identity: contents.identity },
    baseLabel: 'slot',
    credit: 4,
  },
  ...(as !== undefined && { as }),
  onHost: () => {
    tell({ hosts: folder })
    return undefined
  },
})
tell({ key: session.key })
tell({ opened: session.label })
session.onMessage(async (message) => {
  const text = message.text()
  tell({ begun: text })
  if (text === 'stuck') await new Promise(() => undefined)
  for (let turn = 0; turn < 3; turn++) await setImmediate()
  message.settle()
  if (await session.outcomesStored()) tell({ stored: text })
})
