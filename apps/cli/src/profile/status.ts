/** `sealpost status` shows the profile's peer and connection, or sets its status. */
import { fingerprint } from '@sealpost/identity'
import { AVAILABILITIES } from '@sealpost/protocol'
import { type Availability, type PeerKey, SealpostError, validateStatus } from '@sealpost/sdk'
import type { KeyRecovery } from '@sealpost/sdk/recoveries'
import { ratchetedPeersIn } from '@sealpost/sdk/sessions'
import { OperatingError } from '@sealpost/std'
import { Argument, Command } from 'commander'
import { checkBroker } from '../broker/broker-supervisor.ts'
import { standingText } from '../members/root.ts'
import { escapeName } from '../output.ts'
import { setAgentStatus } from '../session/agent-status.ts'
import { callPeer } from '../session/peer-session.ts'
import { callSessionDaemon, isDaemonGone, startSessionDaemon } from '../session/session-daemon.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import type { SavedStatus } from './profile.ts'
import { openProfileProofs, standingsOf } from './proofs.ts'
import { noticeRecoveries } from './recovery-checks.ts'

export function statusCommand(run: RunAction): Command {
  return new Command('status')
    .description(
      'Print your identity, your mesh and the state of the broker. With AVAILABILITY, set your status instead.',
    )
    .addArgument(
      new Argument(
        '[AVAILABILITY]',
        'your status, which other members see; with dnd, you receive only messages with priority now',
      ).choices(AVAILABILITIES),
    )
    .argument('[SUMMARY]', 'a text to show with the status, up to 120 ASCII characters')
    .option(
      '--hook',
      'set the status of the session of the agent that runs this command as a hook: print an empty JSON object, always succeed, and change neither dnd nor an equal status',
    )
    .addHelpText(
      'after',
      examples(
        'sealpost status',
        'sealpost status --json',
        "sealpost status working 'on the parser'",
        'sealpost status working --hook',
      ),
    )
    .action(run(status))
}

interface StatusOptions {
  readonly hook?: boolean
}

function status(shell: Shell, { hook }: StatusOptions, availability?: Availability, summary = ''): Promise<void> {
  if (availability === undefined) return show(shell)
  return hook ? setForHook(shell, { availability, summary }) : setStatus(shell, { availability, summary })
}

/** Sets the status as a side effect of an agent's turn, which it must neither stop nor add text to. */
async function setForHook({ profile, output }: Shell, status: SavedStatus): Promise<void> {
  try {
    await profile.readMembership()
    validateStatus(status)
    await setAgentStatus(profile, status)
  } catch (error) {
    if (!(error instanceof OperatingError || error instanceof SealpostError)) throw error
    output.fail(error.code, error.message)
  }
  await output.result({}, () => '{}')
}

/** Stores the status for these and later sessions. */
async function setStatus(shell: Shell, status: SavedStatus): Promise<void> {
  await shell.profile.readMembership()
  validateStatus(status)
  await shell.profile.writeStatus(status)
  const isTold = await updateRunningSession(shell, status)
  const { output } = shell
  if (output.isJson) await output.result({ ...status, isTold }, () => '')
  else output.info(isTold ? `your status is ${status.availability}` : `${status.availability}, while you are connected`)
}

/** Returns whether another command's session has sent the status. */
async function updateRunningSession({ profile }: Shell, status: SavedStatus): Promise<boolean> {
  const daemon = await startSessionDaemon(profile)
  if (daemon) {
    await daemon.release()
    return false
  }
  try {
    await callSessionDaemon(profile, 'setStatus', status)
    return true
  } catch (error) {
    if (isDaemonGone(error)) return false
    throw error
  }
}

async function show(shell: Shell): Promise<void> {
  const { profile, output } = shell
  const { url, meshId, name } = await profile.readMembership()
  const { identity } = await profile.readKeys()
  const key = identity.signing.publicKey
  const broker = await checkBroker(url, shell.signal)
  const session = await callPeer(shell, { method: 'sessionFacts', params: null }).catch(
    (error: Error & { code?: string }) => ({
      failure: error,
    }),
  )
  const connection =
    'failure' in session
      ? { connected: false, reason: session.failure.code ?? 'internal' }
      : { connected: true, ...session }
  const recovery = 'failure' in session ? null : await noticeRecoveries(shell)
  const proof = await ownProof(shell, { key, isLive: !('failure' in session) })
  const ratchets = (await ratchetedPeersIn(profile.folder)).size
  const says = (await profile.readStatus()) ?? { availability: 'idle', summary: '' }
  await output.result(
    { profile: profile.name, name, key, meshId, url, says, broker, ...proof, ratchets, recovery, ...connection },
    () =>
      output.facts([
        ['profile', `${profile.name} (${profile.folder})`],
        ['name', escapeName(name) || 'none'],
        ['says', [says.availability, says.summary].filter(Boolean).join(': ')],
        ['key', key],
        ['fingerprint', fingerprint(key)],
        ['mesh', meshId],
        ['root', proof.root === null ? 'none' : fingerprint(proof.root)],
        ['membership', standingText(proof.membership)],
        ['ratchets', ratchets === 0 ? 'none' : `with ${ratchets} ${ratchets === 1 ? 'peer' : 'peers'}`],
        ...(recovery === null ? [] : [['recovery', recoveryText(recovery)] as const]),
        ['broker', `${escapeName(url)}  ${broker.ready ? 'ready' : broker.live ? 'not ready' : 'does not respond'}`],
        ['session', 'failure' in session ? session.failure.message : sessionOf(session)],
      ]),
  )
  if ('failure' in session) throw session.failure
}

const recoveryText = ({ label, successor, state }: KeyRecovery): string =>
  `${state}: ${fingerprint(successor)}, certified by your device ${escapeName(label)}`

/** Returns the root that this profile knows, and whether it proves the profile's own membership. */
async function ownProof(shell: Shell, { key, isLive }: { key: PeerKey; isLive: boolean }) {
  const members = isLive ? await callPeer(shell, { method: 'members', params: null }) : []
  const own = members.filter(({ peer }) => peer === key)
  const standingOf = isLive ? await standingsOf(shell, own) : () => 'unknown' as const
  await using proofs = await openProfileProofs(shell)
  return { root: proofs.root, membership: standingOf(key) }
}

const sessionOf = ({ durability, waiting }: { durability: string; waiting: number }): string =>
  `live, durability ${durability}, ${waiting} messages waiting to be sent`
