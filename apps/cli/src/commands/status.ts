/** `sealpost status`: which peer this profile is, and how it stands with its broker. */
import { fingerprint } from '@sealpost/identity'
import { AVAILABILITIES } from '@sealpost/protocol'
import { type Availability, checkedStatus } from '@sealpost/sdk'
import { Argument, Command } from 'commander'
import { askBroker } from '../broker-http.ts'
import { askDesk, holdDesk, isGone } from '../desk.ts'
import { callPeer } from '../peer-session.ts'
import type { KeptStatus } from '../profile.ts'
import { examples, type Run, type Shell } from '../shell.ts'
import { escapeName } from '../terminal-text.ts'

export function statusCommand(run: Run): Command {
  return new Command('status')
    .description('who you are in which mesh, and whether the broker is there; or say how you are')
    .addArgument(
      new Argument('[AVAILABILITY]', 'what others see from now on; with dnd you get only what is urgent').choices(
        AVAILABILITIES,
      ),
    )
    .argument('[SUMMARY]', 'up to 120 characters of ASCII beside it')
    .addHelpText(
      'after',
      examples('sealpost status', 'sealpost status --json', "sealpost status working 'on the parser'"),
    )
    .action(run(status))
}

function status(shell: Shell, _: object, availability?: Availability, summary = ''): Promise<void> {
  return availability ? say(shell, { availability, summary }) : show(shell)
}

/** Kept in the profile: each session says it, the one of now as well as later ones. */
async function say(shell: Shell, status: KeptStatus): Promise<void> {
  await shell.profile.readMembership()
  checkedStatus(status)
  await shell.profile.writeStatus(status)
  const isTold = await tellHolder(shell, status)
  const { output } = shell
  if (output.isJson) await output.answer({ ...status, isTold }, () => '')
  else output.note(isTold ? `you are ${status.availability}` : `${status.availability}, whenever you are there`)
}

/** Whether another command holds the session, and says it at once. */
async function tellHolder({ profile }: Shell, status: KeptStatus): Promise<boolean> {
  const desk = await holdDesk(profile)
  if (desk) {
    await desk.release()
    return false
  }
  try {
    await askDesk(profile, 'setStatus', status)
    return true
  } catch (error) {
    if (isGone(error)) return false
    throw error
  }
}

async function show(shell: Shell): Promise<void> {
  const { profile, output } = shell
  const { url, meshId, name } = await profile.readMembership()
  const { identity } = await profile.readKeys()
  const key = identity.signing.publicKey
  const broker = await askBroker(url, shell.signal)
  const session = await callPeer(shell, { method: 'facts', question: null }).catch(
    (error: Error & { code?: string }) => ({
      failure: error,
    }),
  )
  const connection =
    'failure' in session
      ? { connected: false, reason: session.failure.code ?? 'internal' }
      : { connected: true, ...session }
  const says = (await profile.readStatus()) ?? { availability: 'idle', summary: '' }
  await output.answer({ profile: profile.name, name, key, meshId, url, says, broker, ...connection }, () =>
    output.facts([
      ['profile', `${profile.name} (${profile.folder})`],
      ['name', escapeName(name) || 'none'],
      ['says', [says.availability, says.summary].filter(Boolean).join(': ')],
      ['key', key],
      ['fingerprint', fingerprint(key)],
      ['mesh', meshId],
      ['broker', `${escapeName(url)}  ${broker.ready ? 'ready' : broker.live ? 'not ready' : 'does not answer'}`],
      ['session', 'failure' in session ? session.failure.message : sessionOf(session)],
    ]),
  )
  if ('failure' in session) throw session.failure
}

const sessionOf = ({ durability, waiting }: { durability: string; waiting: number }): string =>
  `live, durability ${durability}, ${waiting === 0 ? 'nothing' : waiting} waiting to be sent`
