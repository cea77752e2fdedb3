/**
 * Runs a session as a separate program that end-to-end tests can kill. It reports events as lines of JSON
 * (`SessionTold`).
 *     bun session-process.ts KEY-FILE FOLDER [NAME] [SETTING=VALUE...]
 *
 * The handler settles each message after some turns of the event loop. It never ends for the text `stuck`. It replies to
 * a text that begins with `ask`. The settings are `credit`, `version` (the version of the link that the host reports),
 * `reads=never` (the session marks no message as read) and `dies`, which kills the host that receives a reply: `unstored` before it stores the reply, `unconfirmed` before it
 * confirms that.
 */
import { writeSync } from 'node:fs'
import { Socket } from 'node:net'
import { setImmediate } from 'node:timers/promises'
import { readKeyFile } from '@sealpost/identity/key-file'
import { settleWithReply } from '../inbox/replies.ts'
import { openSession } from '../sessions/session.ts'

export type SessionTold =
  | { readonly opened: string }
  | { readonly key: string }
  | { readonly hosts: string }
  | { readonly begun: string }
  | { readonly withdrawn: string }
  /** The outcome of the message is stored. */
  | { readonly stored: string }

/** Writes synchronously, because the process may be killed next. */
function tell(told: SessionTold): void {
  writeSync(1, `${JSON.stringify(told)}\n`)
}

const [keyFile, folder, ...words] = process.argv.slice(2) as [string, string, ...string[]]
const as = words.find((word) => !word.includes('='))
const setting = (name: string) => words.find((word) => word.startsWith(`${name}=`))?.slice(name.length + 1)
const [dies, version] = [setting('dies'), setting('version')]
if (dies !== undefined) dieAtReply(dies)
if (version !== undefined) reportVersion(version)

/** Kills this process with the first confirmation, or with the first reply that it receives. */
function dieAtReply(when: string): void {
  const { write, emit } = Socket.prototype
  const die = (bytes: unknown, type: string) => {
    if (String(bytes).includes(`"type":"${type}"`)) process.kill(process.pid, 'SIGKILL')
  }
  Socket.prototype.write = function (this: Socket, ...args: Parameters<typeof write>) {
    if (when === 'unconfirmed') die(args[0], 'confirmed')
    return write.apply(this, args)
  } as typeof write
  Socket.prototype.emit = function (this: Socket, ...args: Parameters<typeof emit>) {
    if (when === 'unstored' && args[0] === 'data') die(args[1], 'answered')
    return emit.apply(this, args)
  } as typeof emit
}

function reportVersion(version: string): void {
  const { write } = Socket.prototype
  Socket.prototype.write = function (this: Socket, ...[bytes, ...args]: Parameters<typeof write>) {
    const isWelcome = String(bytes).includes('"type":"welcome"')
    const changed = isWelcome ? String(bytes).replace(/"version":\d+/, `"version":${version}`) : bytes
    return write.apply(this, [changed, ...args])
  } as typeof write
}

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
    credit: Number(setting('credit') ?? 4),
  },
  ...(as !== undefined && { as }),
  ...(setting('reads') === 'never' && { readWhen: 'marked' }),
  onWithdrawn: (message) => tell({ withdrawn: message.text() }),
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
  if (text.startsWith('ask')) await settleWithReply(session.peer, message, `reply to ${text}`)
  else message.settle()
  if (await session.outcomesStored()) tell({ stored: text })
})
