/** The tables of docs/CAPACITY.md, made from the same figures as a plan. */
import { join } from 'node:path'
import { fillPage, markdownTable } from '@sealpost/harness/report/markdown'
import { count, figure } from '@sealpost/harness/report/text'
import { costAt, type Figures } from './figures.ts'
import { type Load, planFor } from './model.ts'
import { usualHardware, usualLoad } from './options.ts'
import { checkPlacement } from './placement-check.ts'
import { percent, UNPROVEN_MAX } from './report.ts'
import { weatherStorm } from './storm.ts'

const PAGE = join(import.meta.dirname, '../../../../docs/CAPACITY.md')

export async function renderPage(figures: Figures): Promise<void> {
  await Bun.write(PAGE, fillPage(await Bun.file(PAGE).text(), capacityTables(figures)))
}

export function capacityTables(figures: Figures): Record<string, string> {
  return {
    costs: costTable(figures),
    sizes: sizeTable(figures),
    plans: planTable(figures),
    placement: placementTable(),
    storm: stormTable(figures),
  }
}

function costTable(figures: Figures): string {
  const head = ['messages/s of a broker', 'broker µs', 'Postgres µs', 'commits a message', 'WAL bytes a message']
  const rows = [100, 1000, 3000, 10_000, 20_000].map((perSecond) => {
    const { brokerUs, postgresUs, commits, walBytes } = costAt(figures, perSecond)
    return [count(perSecond), figure(brokerUs), figure(postgresUs), figure(commits), count(walBytes)]
  })
  return markdownTable(head, rows)
}

function sizeTable(figures: Figures): string {
  const { waiting, ledgerBytes, handshake, claim } = figures
  const at = (bytes: number) => `${count(waiting.base + waiting.perByte * bytes)} bytes`
  return markdownTable(
    ['what', 'costs'],
    [
      ['a member, on disk', `${count(figures.peerBytes)} bytes`],
      ['a message of 200 bytes that waits', at(200)],
      ['a message of 4,000 bytes that waits', at(4000)],
      ['a message that is remembered against resends, alone in its commit', `${count(ledgerBytes.alone)} bytes`],
      ['the same, five of its sender in one commit', `${count(ledgerBytes.gathered)} bytes`],
      [
        'a message that waited for its recipient: more CPU',
        `${figure(claim.brokerUs)} µs broker, ${figure(claim.postgresUs)} µs Postgres`,
      ],
      ['a byte of payload: more WAL', `${figure(figures.walPerPayloadByte)} bytes`],
      [
        'a silent session',
        `${figure(figures.sessionKb)} kB, ${figure(figures.idleCpuPerSession * 1e6)} µs of CPU a second`,
      ],
      [
        'a broker without any; with 100 busy ones',
        `${count(figures.brokerMbEmpty)} MB; ${count(figures.brokerMbBusy)} MB`,
      ],
      ['a handshake', `${count(handshake.brokerUs)} µs broker, ${count(handshake.postgresUs)} µs Postgres`],
    ],
  )
}

/** The words of a row, and how it differs from the usual load. */
const EXAMPLES: readonly (readonly [name: string, load: Partial<Load>])[] = [
  ['a team', { peers: 1_000 }],
  ['a company', { peers: 100_000 }],
  ['a service', { peers: 1_000_000 }],
  ['a service whose agents talk all day', { peers: 1_000_000, messagesPerPeerADay: 2_000, offlineShare: 0.05 }],
  ['a large service', { peers: 100_000_000, messagesPerPeerADay: 50 }],
  ['a billion people', { peers: 1_000_000_000, messagesPerPeerADay: 50, onlineShare: 0.1 }],
]

function planTable(figures: Figures): string {
  const head = [
    '',
    'peers',
    'connected',
    'messages/s at the peak',
    'brokers',
    'because of',
    'cells',
    'because of',
    'disk of a cell',
  ]
  const rows = EXAMPLES.map(([name, differs]) => {
    const load = { ...usualLoad, ...differs }
    const plan = planFor(load, usualHardware, figures)
    return [
      name,
      count(load.peers),
      count(load.peers * load.onlineShare),
      count(plan.perSecond.peak),
      count(plan.brokers),
      plan.brokerNeeds[0]!.count <= 1 ? 'one, and a spare' : plan.brokerNeeds[0]!.what,
      count(plan.cells),
      plan.cellNeeds[0]!.count <= 1 ? '–' : plan.cellNeeds[0]!.what,
      `${figure(plan.cell.diskGb)} GB`,
    ]
  })
  return markdownTable(head, rows)
}

function placementTable(): string {
  const head = [
    'shards',
    'meshes',
    'sizes',
    'fullest',
    'emptiest',
    'peers that move: a shard comes',
    'a shard goes',
    'fullest heir',
  ]
  const setups = [
    [3, 1_000, 0],
    [3, 1_000, 1.5],
    [10, 10_000, 0],
    [10, 10_000, 1.5],
    [50, 10_000, 0],
    [50, 10_000, 1.5],
  ] as const
  const rows = setups.map(([shards, meshes, spread]) => {
    const outcome = checkPlacement({ shards, meshes, spread, seed: 6 })
    const { fullest, emptiest, movedByNewcomer, movedByLoss, fullestHeir } = outcome
    const sizes = spread === 0 ? 'alike' : 'very different'
    const moved = [movedByNewcomer, movedByLoss].map(percent)
    return [
      count(shards),
      count(meshes),
      sizes,
      figure(fullest),
      figure(emptiest),
      ...moved,
      `× ${figure(fullestHeir)}`,
    ]
  })
  return markdownTable(head, rows)
}

function stormTable(figures: Figures): string {
  const head = [
    'sessions lost',
    'survivors',
    'handshakes/s of each',
    'half back',
    '99 % back',
    'all back',
    'dials in the worst second',
    'refused',
  ]
  const rate = (1e6 / figures.handshake.brokerUs) * (1 - usualHardware.headroom)
  const setups = [
    [10_000, 2, rate],
    [10_000, 2, rate / 4],
    [10_000, 9, rate],
    [50_000, 9, rate / 4],
  ] as const
  const rows = setups.map(([sessions, survivors, handshakesPerSecond]) => {
    const setup = { sessions, survivors, handshakesPerSecond, meshPeers: 15, unprovenMax: UNPROVEN_MAX, seed: 6 }
    const { halfBackSeconds, mostBackSeconds, allBackSeconds, dialsPerSecondMax, refused } = weatherStorm(setup)
    const seconds = [halfBackSeconds, mostBackSeconds, allBackSeconds].map((value) => `${figure(value)} s`)
    return [
      count(sessions),
      count(survivors),
      count(handshakesPerSecond),
      ...seconds,
      count(dialsPerSecondMax),
      count(refused),
    ]
  })
  return markdownTable(head, rows)
}
