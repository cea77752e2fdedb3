/** `sealpost audit` verifies the transparent log of the mesh, online or from a file. */
import { readFile } from 'node:fs/promises'
import { fingerprint } from '@sealpost/identity'
import type { MemberEntry } from '@sealpost/sdk'
import { type AuditFinding, type AuditPins, type AuditReport, auditLog, exportLog } from '@sealpost/sdk/audit'
import { fromBase64url, OperatingError } from '@sealpost/std'
import { Command } from 'commander'
import { escapeName, formatTime } from '../output.ts'
import { SharedStore } from '../profile/contacts.ts'
import { writeSynced } from '../profile/profile.ts'
import { openProfileProofs, reasonText } from '../profile/proofs.ts'
import { callPeer } from '../session/peer-session.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'

interface AuditOptions {
  readonly export?: string
  readonly accept?: true
}

export function auditCommand(run: RunAction): Command {
  return new Command('audit')
    .description(
      "Verify the mesh's log: its signatures, its tree, and that it proves every member, key, group and pool that the broker lists",
    )
    .argument('[FILE]', 'verify this export instead, without a broker')
    .option('--export <FILE>', 'also write the log and the lists to FILE, for an auditor')
    .option(
      '--accept',
      'accept the log that the broker shows now, although it contradicts an earlier one. Do this only if its operator has explained the difference, for example by a restored backup.',
    )
    .addHelpText(
      'after',
      examples('sealpost audit', 'sealpost audit --export mesh-log.json', 'sealpost audit mesh-log.json'),
    )
    .action(run(audit))
}

async function audit(shell: Shell, { export: path, accept }: AuditOptions, file?: string): Promise<void> {
  if (file !== undefined && (path !== undefined || accept))
    throw new OperatingError('usage', 'Give either a FILE to verify, or --export or --accept.')
  const report = file === undefined ? await auditMesh(shell, { path, accept }) : await auditFile(shell, file)
  await show(shell, report)
  const { length } = report.problems
  if (length > 0)
    throw new OperatingError('audit_failed', `The audit found ${length === 1 ? 'a problem' : `${length} problems`}.`)
}

async function auditMesh(
  shell: Shell,
  { path, accept = false }: { readonly path: string | undefined; readonly accept: boolean | undefined },
): Promise<AuditReport> {
  const members: readonly MemberEntry[] = await callPeer(shell, { method: 'members', params: null })
  const pools = await callPeer(shell, { method: 'poolStatements', params: null })
  await using proofs = await openProfileProofs(shell)
  if (accept) {
    const { size } = await proofs.log.accept()
    shell.output.info(`Accepted the log of ${size} entries.`)
  }
  const exported = await exportLog(proofs, { members, pools: pools.map(fromBase64url) })
  if (path !== undefined) await writeSynced(path, `${JSON.stringify(exported)}\n`, 0o600)
  const report = await auditLog(exported)
  if (!report.problems.some(({ code }) => code === 'checkpoint_forged')) await proofs.log.refresh()
  return report
}

/** Verifies a file. If the profile is a member of its mesh, the keys and the checkpoint that the profile has pinned count. */
async function auditFile(shell: Shell, path: string): Promise<AuditReport> {
  const text = await readFile(path, 'utf8').catch(() => {
    throw new OperatingError('file_missing', `The file ${path} can't be read.`)
  })
  const exported = parsed(text)
  return auditLog(exported, await pinsOf(shell, exported))
}

function parsed(text: string): { readonly meshId?: unknown } | null {
  try {
    return JSON.parse(text)
  } catch {
    return null // `auditLog` refuses it
  }
}

async function pinsOf(shell: Shell, exported: { readonly meshId?: unknown } | null): Promise<AuditPins> {
  const membership = await shell.profile.findMembership()
  if (membership?.meshId === undefined || membership.meshId !== exported?.meshId) return {}
  const records = await new SharedStore(shell.profile.proofsFile).load()
  return {
    brokerKey: membership.brokerKey,
    root: records.find((record) => record.kind === 'root')?.root ?? membership.root,
    known: records.find((record) => record.kind === 'checkpoint')?.bytes,
  }
}

async function show({ output }: Shell, report: AuditReport): Promise<void> {
  const { checkpoint, root, entries, members, revocations, problems, notes } = report
  const size = Object.values(entries).reduce((sum, count) => sum + count, 0)
  const facts = {
    ...{ mesh: report.meshId, ok: problems.length === 0, size, entries, members, revocations, root },
    checkpoint: checkpoint && {
      ...{ size: checkpoint.size, root: Buffer.from(checkpoint.rootHash).toString('hex') },
      ...{ at: new Date(checkpoint.atMs).toISOString(), signer: checkpoint.signer },
    },
    ...{ problems, notes },
  }
  await output.result(facts, () =>
    output.facts([
      ['mesh', report.meshId],
      [
        'entries',
        `${size}: ${Object.entries(entries)
          .map(([kind, count]) => `${count} ${kind}`)
          .join(', ')}`,
      ],
      [
        'signed',
        checkpoint ? `${formatTime(checkpoint.atMs)} by ${fingerprint(checkpoint.signer)}` : 'not by the broker',
      ],
      ['root', root === null ? 'none' : fingerprint(root)],
      ['members', `${members} listed, ${revocations} revoked`],
      ...problems.map((finding) => ['PROBLEM', findingText(finding)] as const),
      ...notes.map((finding) => ['note', findingText(finding)] as const),
    ]),
  )
}

const SENTENCES: Readonly<Record<AuditFinding['code'], (about: string) => string>> = {
  checkpoint_forged: () => 'the pinned broker has not signed the checkpoint',
  tree_differs: (size) => `the ${size} entries do not give the root hash of the checkpoint`,
  log_forked: (size) => `the log does not continue the one of ${size} entries that was verified before`,
  log_rolled_back: (size) => `the log had ${size} entries when it was verified before`,
  entry_forged: (at) => `entry ${at} has no valid signature`,
  revocations_broken: (at) => `entry ${at} is not the next revocation`,
  root_differs: (root) => `the log names another root: ${root}`,
  member_unproven: (name) => `${escapeName(name)} is listed as a member, but the log does not prove it`,
  binding_not_logged: (peer) => `the log does not contain the key of ${escapeName(peer)} that the broker hands out`,
  statement_not_logged: (id) => `the log does not contain the newest statement of ${id} that the broker shows`,
  group_rolled_back: (id) => `the broker shows an older statement of the group ${id} than the log contains`,
  pool_rolled_back: (id) => `the broker shows an older statement of the pool ${id} than the log contains`,
  recovery_cancelled: (name) =>
    `a device has certified the key of ${escapeName(name)}, which is listed although the former key had cancelled this`,
  member_unlisted: (name) => `${escapeName(name)} is proven and not revoked, but not listed`,
  entry_unknown: (at) => `this version does not know the kind of entry ${at}`,
}

const findingText = ({ code, about, reason }: AuditFinding): string =>
  `${SENTENCES[code](about)}${reason === null ? '' : `: ${reasonText(reason)}`} (${code})`
