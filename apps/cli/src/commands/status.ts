/** `sealpost status`: which peer this profile is, and how it stands with its broker. */
import { fingerprint } from '@sealpost/identity'
import { Command } from 'commander'
import { askBroker } from '../broker-http.ts'
import { callPeer } from '../peer-session.ts'
import { examples, type Run, type Shell } from '../shell.ts'
import { escapeName } from '../terminal-text.ts'

export function statusCommand(run: Run): Command {
  return new Command('status')
    .description('who you are in which mesh, and whether the broker is there')
    .addHelpText('after', examples('sealpost status', 'sealpost status --json'))
    .action(run(status))
}

async function status(shell: Shell): Promise<void> {
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
  await output.answer({ profile: profile.name, name, key, meshId, url, broker, ...connection }, () =>
    output.facts([
      ['profile', `${profile.name} (${profile.folder})`],
      ['name', escapeName(name) || 'none'],
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
