/** `sealpost admin`: the operator API of a broker, as commands. */

import { setTimeout as delay } from 'node:timers/promises'
import * as shapes from '@sealpost/operator'
import { binaryBytes } from '@sealpost/operator/texts'
import { Command } from 'commander'
import { z } from 'zod'
import { escapeName, formatTime } from '../output.ts'
import { parseHex, parseInteger } from '../settings.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { callAdmin, findAdminAccess, formatAge, formatMillis, nameOrFingerprint, tokenCommand } from './admin-api.ts'
import { createMeshCommand, inviteAdminCommand } from './admin-mesh.ts'
import { adminDeadCommand } from './dead-letters.ts'
import { preparedCommand } from './prepared-sends.ts'

export function adminCommand(run: RunAction): Command {
  const admin = new Command('admin')
    .description(
      'For operators: monitor message flow and act on problems. The commands need SEALPOST_ADMIN_URL and a token.',
    )
    .addHelpText(
      'after',
      `
On the machine that runs \`sealpost up\`, neither is needed: both are in its folder.
${examples('sealpost admin overview', 'sealpost admin console', 'sealpost admin token create grafana')}`,
    )
  for (const command of [
    ...viewCommands(run),
    keptCommand(run),
    quotasCommand(run),
    ...changeCommands(run),
    adminDeadCommand(run),
    preparedCommand(run),
    tokenCommand(run),
  ])
    admin.addCommand(command)
  return admin
}

function changeCommands(run: RunAction): Command[] {
  const example = (...lines: string[]) => examples(...lines.map((line) => `sealpost admin ${line}`))
  return [
    new Command('revoke-peer')
      .description('Revoke a member and its devices permanently. Live sessions end immediately.')
      .argument('<MESH>', 'the id of the mesh', parseHex(16))
      .argument('<KEY>', 'the key of the peer', parseHex(32))
      .addHelpText('after', example(`revoke-peer ${'01'.repeat(16)} ${'ab'.repeat(32)}`))
      .action(run(revokePeer)),
    new Command('revoke-invite')
      .description('Revoke an invite, whether or not it was used')
      .argument('<MESH>', 'the id of the mesh', parseHex(16))
      .argument('<ID>', 'the id of the invite', parseHex(16))
      .addHelpText('after', example(`revoke-invite ${'01'.repeat(16)} ${'ab'.repeat(16)}`))
      .action(run(revokeInvite)),
  ]
}

async function revokePeer(shell: Shell, _: object, mesh: string, key: string): Promise<void> {
  const path = `/meshes/${mesh}/peers/${key}/revoke`
  const { peers } = await callAdmin(shell, { path, answer: shapes.Revoked, body: {} })
  await shell.output.result({ peers }, () => `${peers.length} revoked`)
}

async function revokeInvite(shell: Shell, _: object, mesh: string, id: string): Promise<void> {
  await callAdmin(shell, { path: `/meshes/${mesh}/invites/${id}/revoke`, answer: z.object({}), body: {} })
  await shell.output.result({ inviteId: id, isRevoked: true }, () => 'revoked')
}

const WATCH_EVERY_MS = 2000
const PAGE = 200

function viewCommands(run: RunAction): Command[] {
  const ofMesh = (name: string, description: string) =>
    new Command(name).description(description).argument('<MESH>', 'the id of the mesh (32 hex digits)', parseHex(16))
  const example = (...lines: string[]) => examples(...lines.map((line) => `sealpost admin ${line}`))
  return [
    new Command('overview')
      .description('Report whether messages are flowing and, if not, where and why')
      .option('--watch', 'update every two seconds, until Ctrl-C')
      .addHelpText('after', example('overview', 'overview --watch --json'))
      .action(run(overview)),
    new Command('history').description('Print the metrics of the last half hour, one line for every two seconds').addHelpText('after', example('history --json')).action(run(history)), // biome-ignore format: one thing
    new Command('meshes').description('List the meshes and their message flow. Meshes that need attention come first.').addHelpText('after', example('meshes')).action(run(meshes)), // biome-ignore format: one thing
    ofMesh('mesh', 'Print the state of one mesh, and its peers with the most waiting messages')
      .addCommand(createMeshCommand(run))
      .addCommand(inviteAdminCommand(run))
      .addHelpText('after', example(`mesh ${MESH}`))
      .action(run(mesh)),
    ofMesh('peers', 'List the peers of a mesh, including devices, pools and revoked peers')
      .addHelpText('after', example(`peers ${MESH} --json`))
      .action(run(peers)),
    ofMesh('groups', 'List the groups and pools of a mesh')
      .addHelpText('after', example(`groups ${MESH}`))
      .action(run(groups)),
    ofMesh('invites', 'List the invites of a mesh that were used or revoked')
      .addHelpText('after', example(`invites ${MESH}`))
      .action(run(invites)),
    new Command('database').description('Print the state of the database server').addHelpText('after', example('database')).action(run(database)), // biome-ignore format: one thing
    new Command('shards').description('List the brokers on this database').addHelpText('after', example('shards')).action(run(shards)), // biome-ignore format: one thing
    new Command('audit')
      .description('List the changes that operators made, latest first')
      .option('--mesh <ID>', 'list only changes to this mesh (32 hex digits)', parseHex(16))
      .option('--limit <N>', 'the maximum number of rows', parseInteger(1, 1000), 100)
      .addHelpText('after', example('audit', 'audit --limit 1000 --json'))
      .action(run(audit)),
    new Command('console')
      .description(
        'Print a link to the console. The link contains your token after the #, so anyone who has the link has your rights.',
      )
      .addHelpText('after', example('console'))
      .action(run(consoleLink)),
  ]
}

const MESH = '0123456789abcdef0123456789abcdef'

async function overview(shell: Shell, { watch }: { watch?: boolean }): Promise<void> {
  const { output, signal } = shell
  for (;;) {
    const seen = await callAdmin(shell, { path: '/overview', answer: shapes.Overview })
    await output.result(seen, () => overviewText(shell, seen))
    if (!watch) return
    await delay(WATCH_EVERY_MS, undefined, { signal })
  }
}

function overviewText({ output }: Shell, { flow, causes, now, queue, database, meshes }: shapes.Overview): string {
  const lines = [
    output.facts([
      ['mail', flow],
      [
        'rates',
        `${now.acceptedPerSecond}/s accepted, ${now.pushedPerSecond}/s pushed, ${now.settledPerSecond}/s settled`,
      ],
      ['send to ack', `p50 ${formatMillis(now.ackP50Ms)}, p99 ${formatMillis(now.ackP99Ms)}`],
      ['send to push', `p50 ${formatMillis(now.pushP50Ms)}, p99 ${formatMillis(now.pushP99Ms)}`],
      [
        'queue',
        `${queue.depth} for ${queue.recipients} recipients, the oldest has waited for ${formatAge(queue.oldestAgeMs)}`,
      ],
      ['sessions', String(now.sessions)],
      ['database', `${database.deadRows} dead rows, oldest snapshot ${Math.round(database.snapshotSeconds)} s`],
    ]),
    ...causes.map(({ code, sentence }) => `${code}: ${sentence}`),
  ]
  if (meshes.length > 0) lines.push(meshTable(output, meshes))
  return lines.join('\n')
}

function meshTable(output: Shell['output'], meshes: readonly shapes.MeshState[]): string {
  const rows = meshes.map(({ meshId, name, flow, why, depth, oldestAgeMs, deadLetters, sessions }) => [
    ...[meshId, escapeName(name), flow, String(depth), depth > 0 ? formatAge(oldestAgeMs) : '', countOf(deadLetters)],
    ...[String(sessions), escapeName(why)],
  ])
  return output.table(['MESH', 'NAME', 'MAIL', 'WAITS', 'OLDEST', 'DEAD LETTERS', 'SESSIONS', 'WHY'], rows)
}

/** Formats a number of dead letters, which stops at a thousand. */
const countOf = (deadLetters: number): string => (deadLetters < 1000 ? String(deadLetters) : '1000+')

async function history(shell: Shell): Promise<void> {
  const { output } = shell
  const { samples } = await callAdmin(shell, { path: '/history', answer: shapes.SampleHistory })
  await output.results(samples, () =>
    output.table(
      ['TIME (UTC)', 'ACCEPTED/s', 'PUSHED/s', 'SETTLED/s', 'ACK p99', 'PUSH p99', 'WAITS', 'SESSIONS'],
      samples.map((sample) => [
        new Date(sample.atMs).toISOString().slice(11, 19),
        ...[sample.acceptedPerSecond, sample.pushedPerSecond, sample.settledPerSecond].map(String),
        ...[
          formatMillis(sample.ackP99Ms),
          formatMillis(sample.pushP99Ms),
          String(sample.depth),
          String(sample.sessions),
        ],
      ]),
    ),
  )
}

async function pages<Page extends { next: string | null }>(ask: (after?: string) => Promise<Page>): Promise<Page[]> {
  const found = [await ask()]
  for (let next = found[0]!.next; next !== null; next = found.at(-1)!.next) found.push(await ask(next))
  return found
}

async function meshes(shell: Shell): Promise<void> {
  const ask = (after?: string) =>
    callAdmin(shell, { path: '/meshes', answer: shapes.MeshPage, query: { after, limit: PAGE } })
  const found = (await pages(ask)).flatMap((page) => page.meshes)
  await shell.output.results(found, () => (found.length === 0 ? 'no meshes' : meshTable(shell.output, found)))
}

async function mesh(shell: Shell, _: object, meshId: string): Promise<void> {
  const path = `/meshes/${meshId}`
  const found = await callAdmin(shell, { path, answer: shapes.MeshReport })
  const { peers } = await callAdmin(shell, { path: `${path}/waiting`, answer: shapes.PeerPage })
  await shell.output.result({ ...found, waiting: peers }, () => {
    const facts = shell.output.facts([
      ['name', escapeName(found.name)],
      ['mail', `${found.flow}: ${escapeName(found.why)}`],
      ['members', `${found.members}${found.membersAreMore ? ' or more' : ''}, ${found.sessions} in session`],
    ])
    return peers.length === 0 ? facts : `${facts}\n\n${peerTable(shell.output, peers)}`
  })
}

async function peers(shell: Shell, _: object, meshId: string): Promise<void> {
  const ask = (after?: string) =>
    callAdmin(shell, { path: `/meshes/${meshId}/peers`, answer: shapes.PeerPage, query: { after, limit: PAGE } })
  const found = (await pages(ask)).flatMap((page) => page.peers)
  await shell.output.results(found, () => (found.length === 0 ? 'no peers' : peerTable(shell.output, found)))
}

function peerTable(output: Shell['output'], peers: readonly shapes.PeerReport[]): string {
  const rows = peers.map(
    ({ peerKey, name, kind, role, status, isCertified, depth, oldestAgeMs, unsettled, reason }) => [
      ...[peerKey, name ? escapeName(name) : '', kind === 'peer' ? role : kind],
      isCertified === false ? `${status}, unproven` : status,
      ...[String(depth), formatAge(oldestAgeMs), String(unsettled), reason?.replaceAll('_', ' ') ?? ''],
    ],
  )
  return output.table(['KEY', 'NAME', 'ROLE', 'STATUS', 'WAITS', 'OLDEST', 'UNSETTLED', 'WHY'], rows)
}

async function groups(shell: Shell, _: object, meshId: string): Promise<void> {
  const found = (await callAdmin(shell, { path: `/meshes/${meshId}/groups`, answer: shapes.GroupList })).groups
  const rows = found.map(({ kind, id, owner, ownerName, epoch, members, isOver }) => [
    ...[kind, id, nameOrFingerprint(ownerName, owner), String(epoch), members === null ? '' : String(members)],
    isOver ? 'over' : '',
  ])
  await shell.output.results(found, () => shell.output.table(['KIND', 'ID', 'OWNER', 'EPOCH', 'MEMBERS', ''], rows))
}

async function invites(shell: Shell, _: object, meshId: string): Promise<void> {
  const found = (await callAdmin(shell, { path: `/meshes/${meshId}/invites`, answer: shapes.Invites })).invites
  const rows = found.map(({ inviteId, issuer, issuerName, uses, usesMax, notAfterMs, revokedAtMs }) => [
    ...[inviteId, issuerOf(issuer, issuerName, usesMax), `${uses} of ${usesMax ?? '?'}`, formatTime(notAfterMs)],
    revokedAtMs === null ? '' : 'revoked',
  ])
  await shell.output.results(found, () => shell.output.table(['ID', 'ISSUER', 'USED', 'UNTIL (UTC)', ''], rows))
}

/** Returns an invite's issuer, which is unknown if the invite was revoked unused. */
const issuerOf = (issuer: string | null, name: string | null, usesMax: number | null): string => {
  if (issuer) return nameOrFingerprint(name, issuer)
  return usesMax === null ? '' : 'the operator'
}

async function database(shell: Shell): Promise<void> {
  const { output } = shell
  const seen = await callAdmin(shell, { path: '/database', answer: shapes.DatabaseReport })
  const rows = seen.tables.map(({ name, rows, deadRows, bytes: size, vacuumedAtMs }) => [
    ...[name, String(rows), String(deadRows), binaryBytes(size), formatTime(vacuumedAtMs)],
  ])
  const wal = seen.walBytesPerSecond === null ? 'unknown' : `${binaryBytes(seen.walBytesPerSecond)}/s`
  await output.result(seen, () =>
    [
      output.facts([
        ['server', `Postgres ${seen.version}, ${binaryBytes(seen.bytes)}`],
        ['log', wal],
        ['connections', `${seen.connections} of ${seen.connectionsMax} in use, ${seen.ownConnections} by Sealpost`],
        ['waiting', `${seen.statementsWaiting} statements`],
      ]),
      ...seen.snapshots.map(({ pid, application, seconds }) => `pid ${pid} (${escapeName(application)}) has held a snapshot for ${Math.round(seconds)} s`), // biome-ignore format: one thing
      output.table(['TABLE', 'ROWS', 'DEAD', 'SIZE', 'VACUUMED (UTC)'], rows),
    ].join('\n'),
  )
}

async function shards(shell: Shell): Promise<void> {
  const { shards } = await callAdmin(shell, { path: '/shards', answer: shapes.Shards })
  const rows = shards.map(({ name, url, isAlive, isSelf, epoch }) => [
    ...[escapeName(name), isAlive ? 'alive' : 'gone', url ?? '', String(epoch), isSelf ? 'this one' : ''],
  ])
  await shell.output.results(shards, () => shell.output.table(['NAME', 'IS', 'DIALLED AT', 'EPOCH', ''], rows))
}

async function audit(shell: Shell, { mesh, limit }: { mesh?: string; limit: number }): Promise<void> {
  const query = { meshId: mesh, limit }
  const { entries } = await callAdmin(shell, { path: '/audit', answer: shapes.Audit, query })
  const rows = entries.map(({ atMs, actor, action, meshId, subject, count }) => [
    ...[formatTime(atMs), escapeName(actor), action, meshId ?? '', escapeName(subject ?? ''), String(count)],
  ])
  await shell.output.results(entries, () =>
    shell.output.table(['WHEN (UTC)', 'WHO', 'WHAT', 'MESH', 'SUBJECT', 'COUNT'], rows),
  )
}

async function consoleLink({ settings, output }: Shell): Promise<void> {
  const { url, token } = await findAdminAccess(settings)
  const link = `${new URL('/console/', url).href}#${token}`
  await output.result({ link }, () => link)
}

function keptCommand(run: RunAction): Command {
  return new Command('kept')
    .description("Print the size of a mesh's stored values, history, snapshots and files. Messages are not included.")
    .argument('<MESH>', 'the id of the mesh (32 hex digits)', parseHex(16))
    .addHelpText('after', examples(`sealpost admin kept ${MESH}`, `sealpost admin kept ${MESH} --json`))
    .action(run(kept))
}

async function kept(shell: Shell, _: object, meshId: string): Promise<void> {
  const { output } = shell
  const found = await callAdmin(shell, { path: `/meshes/${meshId}/kept`, answer: shapes.StorageReport })
  const { files, bytes, unfinished } = found.attachments
  const facts = output.facts([['files', `${files}, ${binaryBytes(bytes)}; ${unfinished} incomplete`]])
  await output.result(found, () =>
    found.spaces.length === 0 ? `no state and no history\n${facts}` : `${spaceTable(output, found.spaces)}\n${facts}`,
  )
}

function spaceTable(output: Shell['output'], spaces: readonly shapes.SpaceReport[]): string {
  const rows = spaces.map((space) => [
    ...[space.kind, space.spaceId, nameOrFingerprint(space.ownerName, space.owner)],
    ...[String(space.entries), binaryBytes(space.entryBytes)],
    ...(space.keptSinceMs === null ? ['none', '', ''] : keptOf(space)),
    space.snapshot ? formatAge(space.snapshot.ageMs) : '',
  ])
  const head = ['SPACE', 'ID', 'OWNER', 'VALUES', 'SIZE', 'HISTORY', 'SINCE (UTC)', 'DAYS', 'SNAPSHOT AGE']
  return output.table(head, rows)
}

const keptOf = ({ historyBytes, historyBytesMax, keptSinceMs, days }: shapes.SpaceReport): string[] => [
  `${binaryBytes(historyBytes)} of ${binaryBytes(historyBytesMax)}`,
  formatTime(keptSinceMs),
  String(days),
]

function quotasCommand(run: RunAction): Command {
  return new Command('quotas')
    .description(
      'Print the usage, the largest consumer and the limit of each quota, for a mesh, its mailboxes, its senders and its owners',
    )
    .argument('<MESH>', 'the id of the mesh (32 hex digits)', parseHex(16))
    .addHelpText('after', examples(`sealpost admin quotas ${MESH}`, `sealpost admin quotas ${MESH} --json`))
    .action(run(quotas))
}

async function quotas({ output, ...shell }: Shell, _: object, meshId: string): Promise<void> {
  const path = `/meshes/${meshId}/quotas`
  const found = (await callAdmin({ output, ...shell }, { path, answer: shapes.QuotaList })).quotas
  await output.results(found, () =>
    output.table(['QUOTA', 'USED', 'LIMIT', 'SHARE', 'SETTING', 'OF'], found.map(rowOf)),
  )
}

function rowOf({ name, used, max, setting, peerKey }: shapes.Quota): string[] {
  const amount = name.endsWith('bytes') ? binaryBytes : String
  const [limit, share] = max === null ? ['none', ''] : [amount(max), `${Math.round((used / max) * 100)} %`]
  return [name.replaceAll('_', ' '), amount(used), limit, share, setting, peerKey ?? '']
}
