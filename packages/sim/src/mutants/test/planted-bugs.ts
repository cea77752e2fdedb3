/** Lists planted bugs, each an edit of the real code that the simulator must detect. */
import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'

interface Edit {
  readonly name: string
  /** The replaced text, which occurs once in the package. */
  readonly from: string
  readonly to: string
  /** Matches the violation that reveals the bug. */
  readonly breaks: RegExp
  /** The seed at which the search starts, near a revealing one if those are rare. Default: 1. */
  readonly firstSeed?: number
}

export interface PlantedBug extends Edit {
  readonly folder: string
}

const driver: readonly Edit[] = [
  {
    name: 'ack before commit',
    from: 'committed = await queue.commit(batch)',
    to: `queue.commit(batch).catch(() => undefined)
      const stored = (_: unknown, i: number) => ({ status: 'stored', id: 1_000_000 + startedAtMs + i, isLeased: false, isExpected: true })
      committed = { outcomes: batch.appends.map(stored), enqueuedAtMs: 0 } as unknown as Committed`,
    breaks: /^P[15]|^driver/,
  },
  {
    name: 'ack of an unknown commit',
    from: 'return this.#failed(batch, error, startedAtMs)',
    to: `const stored = { status: 'stored', id: 1, isLeased: false, isExpected: true }
      committed = { outcomes: batch.appends.map(() => stored), enqueuedAtMs: 0 } as unknown as Committed`,
    breaks: /^P[15]/,
  },
  {
    name: 'the pause after a failed commit never ends',
    from: 'clock.after(pauseMs + 1, () => this.flushSoon())',
    to: '',
    breaks: /^driver: .* waits/,
  },
  {
    name: 'the pause after a failed commit is skipped',
    from: 'this.#pause(this.#backOffMs)',
    to: 'this.flushSoon()',
    breaks: /^driver: .* too early/,
  },
  {
    name: 'the back-off never grows',
    from: 'this.#backOffMs * 2',
    to: 'this.#backOffMs',
    breaks: /^driver: .* too early/,
  },
  {
    name: 'the back-off never resets',
    from: 'this.#backOffMs = 0\n    report.committed',
    to: 'report.committed',
    breaks: /^driver: .* waits/,
  },
  {
    name: 'appends behind a failed commit are stored',
    from: '...this.#appends]\n    this.#settles = [...(this.#inFlight?.settles ?? []), ...this.#settles]\n    this.#areSettlesDue = true\n    this.#appends = []',
    to: ']\n    this.#settles = [...(this.#inFlight?.settles ?? []), ...this.#settles]\n    this.#areSettlesDue = true',
    breaks: /^P6|^driver/,
  },
  {
    name: 'a failed commit forgets its settles',
    from: 'this.#settles = [...(this.#inFlight?.settles ?? []), ...this.#settles]',
    to: '',
    breaks: /^driver: a settle waits/,
  },
  {
    name: 'few settles wait for a commit of appends',
    from: 'this.#batches.callSettles()',
    to: '',
    breaks: /^driver: a settle waits/,
  },
  {
    name: 'a shutdown drops the last batch',
    from: 'while (!this.#commits.isIdle && clock',
    to: 'while (false && clock',
    breaks: /^driver: a shutdown/,
    firstSeed: 20,
  },
  {
    name: 'an opening does not wait for the settles of the session before',
    from: 'await this.committed(session, WAIT_MAX_MS)\n',
    to: '',
    breaks: /^driver: a session opens/,
  },
  {
    name: 'extensions are not flushed',
    from: 'for (const extension of extensions) this.#track(extension, this.#extensions.add(extension))',
    to: 'return void extensions',
    breaks: /^driver: an extension waits/,
    firstSeed: 45,
  },
  {
    name: 'a reject is lost',
    from: 'const rejected = this.#rejects.add(reject)',
    to: 'const rejected = Promise.resolve(undefined)',
    breaks: /^P[38]|^driver: a (reject waits|session opens)/,
  },
  {
    name: 'a settle sends no receipt',
    from: 'this.#commits.settle(delivery)',
    to: 'this.#commits.settle({ ...delivery, receiptTo: null })',
    breaks: /^P3|^driver/,
  },
  {
    name: 'settle on push',
    from: "return this.#connections.get(socket)?.send(frames) ?? 'sent'",
    to: `for (const frame of frames)
      if (frame.type === 'push')
        this.#ports.clock.soon(() =>
          this.step(() => this.engine.received(socket, { type: 'settle', ids: frame.deliveries.map(({ id }) => id) })),
        )
    return this.#connections.get(socket)?.send(frames) ?? 'sent'`,
    breaks: /^P2|^credit/,
  },
  {
    name: 'a leaving member keeps its pool leases',
    from: 'return this.ends.release(update.releases)',
    to: 'return',
    breaks: /^leavers|^driver: a release waits/,
  },
  {
    name: 'a failed claim is not reported',
    from: 'this.step(() => this.engine.claimFailed(wants))',
    to: '',
    breaks: /^P3/,
  },
  {
    name: 'wants that came during a claim wait for the next one',
    from: 'this.#isAsking = false\n    this.pull()',
    to: 'this.#isAsking = false',
    breaks: /^P3/,
  },
  {
    name: 'a failed fence is not repeated',
    from: '() => isConnected(socket) && this.fence(socket, session)',
    to: '() => isConnected(socket)',
    breaks: /^P3/,
  },
  {
    name: 'no fence after a lost reply',
    from: 'this.#statements.fence(socket, session)',
    to: 'this.#ports.clock.soon(() => this.step(() => this.engine.fenced(socket, session.epoch)))',
    breaks: /^P6/,
  },
  {
    name: 'a retried delivery wakes no one',
    from: 'if (afterMs <= RETRY_WAKE_MAX_MS)',
    to: 'if (afterMs < 0)',
    breaks: /^P3: delivery .* waits/,
  },
  {
    name: 'delayed deliveries stay delayed',
    from: 'this.#isReleasing = false\n    this.#schedule()',
    to: 'this.#isReleasing = false',
    breaks: /^P3/,
  },
  {
    name: 'no sweeps',
    from: 'this.#ports.failures.start(this.#sweep())',
    to: '',
    breaks: /^P3/,
  },
  {
    name: 'the first failed sweep is the last one',
    from: 'this.#isSweeping = false\n    if (!swept) return',
    to: 'if (!swept) return\n    this.#isSweeping = false',
    breaks: /^P3/,
    firstSeed: 95,
  },
  {
    name: 'no shard checks its sessions',
    from: 'this.#statements.checkSessions(checks)',
    to: '',
    breaks: /^revocation/,
  },
]

const core: readonly Edit[] = [
  {
    name: 'a client that closes normally keeps what it has not touched',
    from: "if (end === 'normal') this.returnUntouched(live)",
    to: '',
    breaks: /^unread/,
  },
  {
    name: 'the result of a claim before a fence is applied',
    from: 'if (isCurrent) this.pushFound(live, deliveries)',
    to: 'this.pushFound(live, deliveries)',
    breaks: /^P7: .* void/,
    firstSeed: 1305,
  },
  {
    name: 'a fence keeps the parked deliveries',
    from: 'live.takeParked() // their leases are void, so they will be claimed again',
    to: '',
    breaks: /^P7: .* void/,
    firstSeed: 80,
  },
  {
    name: 'a lease on insert passes a claim that may bring older mail',
    from: 'if (this.asked === null) return false\n    return this.isAskedForAny',
    to: 'return false\n    return this.isAskedForAny',
    breaks: /^P6/,
    firstSeed: 1060,
  },
  {
    name: 'a recipient that is not to be disturbed gets leases on insert',
    from: 'this.priorityMax === PRIORITY_MAX && this.mayLeaseOnInsert(lane)',
    to: 'this.mayLeaseOnInsert(lane)',
    breaks: /^dnd/,
  },
  {
    name: 'lapsed leases free no room',
    from: 'if (!unsettled.isLapsed) this.release(unsettled)\n      unsettled.isLapsed',
    to: 'unsettled.isLapsed',
    breaks: /^P3/,
  },
  {
    name: 'credit is ignored',
    from: 'return this.window.count - this.held - this.insertLeases - (this.asked?.count ?? 0)',
    to: 'return 1_000',
    breaks: /^credit/,
  },
  {
    name: 'a claim begins after known deliveries',
    from: '? this.waitingIds : ANY_ID',
    to: '? { ...this.waitingIds, from: this.waitingIds.from + 1 } : ANY_ID',
    breaks: /^P6/,
  },
  {
    name: 'a dropped send is ignored',
    from: "if (outcome === 'dropped') this.end(session, 'slow_consumer')",
    to: '',
    breaks: /^P[1-8]/,
  },
  {
    name: 'the sequence after a refusal is ignored',
    from: 'return this.barred.size === 0 ||',
    to: 'return true ||',
    breaks: /^P6/,
  },
  {
    name: 'the session of a revoked peer continues',
    from: 'disconnectMember: (member) => this.disconnectMember(member),',
    to: 'disconnectMember: () => undefined,',
    breaks: /^revocation/,
  },
  {
    name: 'a consent is acknowledged and ignored',
    from: 'if (peer.user === user) setConsent(peer, consent)',
    to: 'if (peer.user === user) continue',
    breaks: /^consent/,
  },
]

/** Bugs in the memory queue, which stand for bugs in the SQL statements. */
const queue: readonly Edit[] = [
  {
    name: 'the attempt of an untouched delivery counts',
    from: 'if (isUntouched) row.attempts = Math.max(row.attempts - 1, 0)',
    to: '',
    breaks: /^unread/,
  },
  {
    name: 'callers of a failed statement get no reply',
    from: 'for (const { reject } of waiters) reject(error)',
    to: '',
    breaks: /^P3/,
  },
  {
    name: 'no dedupe',
    from: 'this.settle(settles)\n',
    to: `this.settle(settles)
    for (const mesh of this.store.allMeshes()) {
      mesh.ledger.clear()
      mesh.ledgerByKey.clear()
      for (const member of mesh.members.values()) member.lastEnvelopeId = '0'.repeat(32) as EnvelopeId
    }
`,
    breaks: /^P5/,
  },
  {
    name: 'a lease on insert ignores waiting deliveries',
    from: '(!isLeased || this.isCaughtUp(recipient, append.sender))',
    to: 'true',
    breaks: /^P6/,
    firstSeed: 240,
  },
  {
    name: 'claims ignore leases',
    from: '.filter((row) => isFree(row, session.epoch, nowMs) || fresh.includes(row))',
    to: '',
    breaks: /^P7/,
  },
  {
    name: 'a short claim means an empty queue',
    from: 'const hasMore = ready.length >= limit || taken.length < ready.length',
    to: 'const hasMore = taken.length >= limit',
    breaks: /^P6/,
    firstSeed: 470,
  },
  {
    name: 'a claim forgets the mesh',
    from: 'const free = [...deliveries, ...gone]',
    to: `const foreign = [...store.deliveries()].filter((row) => row.recipient === want.session.peer && row.meshId !== want.session.meshId)
  const free = [...deliveries, ...gone, ...foreign]`,
    breaks: /^P[49]/,
  },
  {
    name: 'a collect begins too late',
    from: '.filter((row) => ids.from <= row.id && row.id <= ids.to)\n    .filter((row) => isRemotelyLeased',
    to: '.filter((row) => ids.from < row.id && row.id <= ids.to)\n    .filter((row) => isRemotelyLeased',
    breaks: /^P[36]/,
  },
  {
    name: 'a pool deals held deliveries',
    from: 'if (lease === null || lease.untilMs <= this.store.nowMs) return true',
    to: 'return true',
    breaks: /^one holder/,
  },
  {
    name: 'an opening ignores the epoch',
    from: 'member.isRevoked || member.session.epoch !== epoch',
    to: 'member.isRevoked',
    breaks: /^P3.*superseded/,
    firstSeed: 350,
  },
  {
    name: 'a takeover keeps the epoch',
    from: 'member.session.epoch += 2',
    to: 'if (epoch === 0) member.session.epoch = 2',
    breaks: /^P[367]/,
  },
  {
    name: 'an expired delivery leaves no dead letter',
    from: "this.bury(row, 'expired')",
    to: 'this.store.remove(row)',
    breaks: /^P[123]/,
  },
  {
    name: 'a dead letter sends no receipt',
    from: "...expired.map((row) => ({ row, event: 'expired' }) as const),",
    to: '',
    breaks: /^P3: no receipt/,
  },
  {
    name: 'one failed attempt is enough',
    from: `failedAttempts >= failedAttemptsMax &&
    firstFailedAttemptAtMs !== null &&
    firstFailedAttemptAtMs <= nowMs - failedAttemptsSpanMs`,
    to: 'failedAttempts > 0',
    breaks: /^P2: given up too early/,
  },
  {
    name: 'a sweep takes receipts that wait',
    from: 'seen.filter((row) => row.expiresAtMs <= this.store.nowMs)',
    to: 'seen.filter((row) => isReceipt(row) || row.expiresAtMs <= this.store.nowMs)',
    breaks: /^P2: a receipt .* too early/,
  },
  {
    name: 'a waiting delivery is reported as lost',
    from: 'const lost = this.store.deadLetters.filter(',
    to: `const plain = this.store.find(meshId, peer)!.deliveries.filter(({ terms }) => terms === null)
    const waiting = plain.map((row) => ({ ...row, reason: 'expired' as const, isReported: false }))
    const lost = [...this.store.deadLetters, ...waiting].filter(`,
    breaks: /^P2: reported as expired/,
  },
  {
    name: 'a commit ignores revocations',
    from: 'return this.store.find(meshId, peer)?.isRevoked === false',
    to: 'return true',
    breaks: /^revocation/,
  },
  {
    name: 'an opening ignores revocations',
    from: 'member.isRevoked || member.session.epoch !== epoch',
    to: 'member.session.epoch !== epoch',
    breaks: /^revocation/,
    firstSeed: 540,
  },
]

const sdk: readonly Edit[] = [
  {
    name: 'a settled delivery is settled before its mark is stored',
    from: 'if (!this.#writer) return this.#settleIfCurrent(message)',
    to: 'return this.#settleIfCurrent(message)',
    breaks: /^P2/,
  },
]

const sim: readonly Edit[] = [
  {
    name: 'a broadcast is overtaken by later messages',
    from: 'this.driver.step(() => this.engine.received(connection.socket, frame))',
    to: `this.after(frame.type === 'broadcast' ? 200 : 0, () => this.driver.step(() => this.engine.received(connection.socket, frame)))`,
    breaks: /^P6/,
  },
  {
    name: 'hints only, no poll',
    from: 'pollMs: POLL_MS',
    to: 'pollMs: Infinity',
    breaks: /^P3/,
  },
  {
    name: 'former keys are forgotten',
    from: '...world.turns.formersOf({ meshId, peer }),',
    to: '',
    breaks: /^P3.*does_not_open/,
  },
  {
    name: 'a rotation is acknowledged and not stored',
    from: 'world.turns.bind(world.store, { meshId, peer: peerKey }, frame)',
    to: "(() => 'done')()",
    breaks: /^P3.*does_not_open/,
  },
]

const PLANTED = { driver, core, queue, sdk, sim }
export const plantedBugs: readonly PlantedBug[] = Object.entries(PLANTED).flatMap(([folder, edits]) =>
  edits.map((edit) => ({ ...edit, folder })),
)

const PACKAGES = resolve(import.meta.dirname, '../../../..')

/** Returns the file that a bug edits, and its contents. Throws unless the replaced text occurs exactly once. */
export function placeOf({ name, folder, from }: PlantedBug): { path: string; text: string } {
  const root = join(PACKAGES, folder, 'src')
  const sources = [...new Bun.Glob('**/*.ts').scanSync(root)].filter((file) => !/test\b|mutants\//.test(file))
  const files = sources.map((file) => ({ path: join(root, file), text: readFileSync(join(root, file), 'utf8') }))
  const found = files.filter(({ text }) => text.includes(from))
  const isOnce = found.length === 1 && found[0]!.text.split(from).length === 2
  if (!isOnce) throw new Error(`planted bug "${name}": its text occurs not once in packages/${folder}/src: ${from}`)
  return found[0]!
}
