/** `sealpost schedule` sends recurring messages: one message for each tick of a cron expression. */
import { setTimeout as delay } from 'node:timers/promises'
import { BODY_BYTES_MAX, PRIORITIES, type Priority } from '@sealpost/protocol'
import { type Millis, OperatingError } from '@sealpost/std'
import { Command, Option } from 'commander'
import { base64Of, contentOf, readLongText } from '../messages/content.ts'
import { isEverybody, readersOf, resolveAudience, TO_HELP_WITHOUT_EVERYBODY, wordsOf } from '../messages/delivery.ts'
import type { FileReaders } from '../messages/files.ts'
import { escapeName } from '../output.ts'
import { callPeer, readJoinedProfile } from '../session/peer-session.ts'
import { parseDuration } from '../settings.ts'
import { abortable, examples, type RunAction, type Shell } from '../shell.ts'
import {
  addSchedule,
  type Clocks,
  completeTextOf,
  dueTick,
  type MissedPolicy,
  MissedTicks,
  parseCron,
  readSchedules,
  removeSchedule,
  type Schedule,
} from './schedules.ts'
import type { TickParams } from './tick-calls.ts'

export function scheduleCommand(run: RunAction): Command {
  return new Command('schedule')
    .description('Send recurring messages: one message for each time that a cron expression names')
    .addCommand(addCommand(run))
    .addCommand(listCommand(run))
    .addCommand(removeCommand(run))
    .addCommand(runCommand(run))
    .addHelpText(
      'after',
      examples(
        "sealpost schedule add '0 9 * * MON-FRI' bob,@crew 'stand-up in 15 minutes'",
        'sealpost schedule run',
        'sealpost schedule list',
      ),
    )
}

interface AddOptions {
  readonly timeZone: string
  readonly missed: MissedPolicy
  readonly priority: Priority
  readonly ttl?: number
}

const localTimeZone = (): string => Intl.DateTimeFormat().resolvedOptions().timeZone

function addCommand(run: RunAction): Command {
  return new Command('add')
    .description('Add a recurring message to the profile. `sealpost schedule run` sends it.')
    .argument(
      '<CRON>',
      'minute, hour, day of the month, month and day of the week, such as "0 9 * * MON-FRI"; a sixth field in front names the seconds',
    )
    .argument('<TO>', TO_HELP_WITHOUT_EVERYBODY)
    .argument(
      '[TEXT]',
      'the message, in which {tick} stands for the time of the tick; if TEXT is omitted, the message is read from stdin. A text of more than 64 KiB is sent as a file with a preview',
    )
    .addOption(
      new Option('--time-zone <ZONE>', 'the time zone of the expression, such as Europe/Zurich').default(
        undefined,
        'the time zone of this machine',
      ),
    )
    .addOption(
      new Option(
        '--missed <POLICY>',
        'what happens to ticks that were missed by more than a minute because nothing ran: once sends one message for the latest of them, skip sends none',
      )
        .choices(['once', 'skip'])
        .default('once'),
    )
    .addOption(new Option('--priority <PRIORITY>', 'the priority of the message').choices(PRIORITIES).default('next'))
    .option(
      '--ttl <TIME>',
      'how long the broker stores the message for an offline recipient, such as 2h or 14d',
      parseDuration,
    )
    .addHelpText(
      'after',
      examples(
        "sealpost schedule add '0 9 * * MON-FRI' bob 'stand-up'",
        "sealpost schedule add '*/15 * * * *' @crew ping --missed skip",
        "sealpost schedule add '0 18 L * *' carol 'the monthly report' --time-zone Europe/Zurich",
      ),
    )
    .action(run(add))
}

async function add(
  shell: Shell,
  { timeZone = localTimeZone(), missed, priority, ttl }: AddOptions,
  cron: string,
  to: string,
  text: string | undefined,
): Promise<void> {
  const nowMs = Date.now()
  const next = parseCron({ cron, timeZone }, nowMs).nextRun(new Date(nowMs))!
  const words = wordsOf(to)
  if (isEverybody(words)) throw new OperatingError('usage', 'A schedule needs peers or groups as its recipients.')
  const body = new TextDecoder().decode(await readLongText({ text, file: undefined }))
  const { peers, groups } = await resolveAudience(shell, words)
  const schedule = await addSchedule(shell.profile, {
    ...{ cron, timeZone, missed, to, peers, groups: groups.map(({ id }) => id), text: body, priority },
    ...{ ttlSeconds: ttl ?? 0, createdAtMs: nowMs },
  })
  await shell.output.result({ ...schedule, nextAtMs: next.getTime() }, () =>
    shell.output.facts([
      ['schedule', schedule.id],
      ['to', escapeName(to)],
      ['next', next.toISOString()],
    ]),
  )
  shell.output.info('`sealpost schedule run` sends the message; leave it running')
}

function listCommand(run: RunAction): Command {
  return new Command('list')
    .description('List the recurring messages of the profile')
    .addHelpText('after', examples('sealpost schedule list', 'sealpost schedule list --json'))
    .action(run(list))
}

async function list(shell: Shell): Promise<void> {
  const schedules = await readSchedules(shell.profile)
  const last = schedules.length === 0 ? {} : await callPeer(shell, { method: 'lastTicks', params: null })
  const rows = schedules.map((schedule) => {
    const lastAtMs = last[schedule.id] ?? null
    const after = new Date(Math.max(lastAtMs ?? 0, Date.now()))
    return { ...schedule, lastAtMs, nextAtMs: parseCron(schedule, Date.now()).nextRun(after)?.getTime() ?? null }
  })
  const time = (atMs: Millis | null) => (atMs === null ? '' : new Date(atMs).toISOString().slice(0, 19).concat('Z'))
  const { output } = shell
  await output.results(rows, () =>
    output.table(
      ['ID', 'CRON', 'TIME ZONE', 'TO', 'LAST', 'NEXT'],
      rows.map(({ id, cron, timeZone, to, lastAtMs, nextAtMs }) => [
        ...[id, escapeName(cron), timeZone, escapeName(to), time(lastAtMs), time(nextAtMs)],
      ]),
    ),
  )
}

function removeCommand(run: RunAction): Command {
  return new Command('remove')
    .description('Remove a recurring message')
    .argument('<ID>', 'the id of the schedule, from "schedule list"')
    .addHelpText('after', examples('sealpost schedule remove 1f0c22ab'))
    .action(run(remove))
}

async function remove(shell: Shell, _options: object, id: string): Promise<void> {
  await removeSchedule(shell.profile, id)
  await callPeer(shell, { method: 'forgetSchedule', params: id }).catch(() => undefined) // the record does no harm
  await shell.output.result({ removed: id }, () => `removed ${id}`)
}

function runCommand(run: RunAction): Command {
  return new Command('run')
    .description(
      'Send the recurring messages of the profile, until Ctrl-C. Each tick is sent once, even if this command or the broker is killed, or if the clock is set. Other commands of the profile can run at the same time.',
    )
    .addHelpText('after', examples('sealpost schedule run'))
    .action(run(runAll))
}

async function runAll(shell: Shell): Promise<void> {
  await readJoinedProfile(shell)
  await shell.profile.readKeys()
  const runner = new ScheduleRunner(shell)
  await runner.begin()
  const { length } = await readSchedules(shell.profile)
  shell.output.info(`running ${length === 1 ? '1 schedule' : `${length} schedules`}; press Ctrl-C to end`)
  for (;;) await abortable(delay(await runner.turn()), shell.signal)
}

/** How often the clock and the file are read, because either may change at any time. */
const TURN_EVERY_MS = 1_000
const RETRY_AFTER_MS = 1_000
/** The maximum number of ticks to send at once. */
const TICKS_MAX = 100

const clocks = (): Clocks => ({ wallMs: Date.now(), steadyMs: performance.now() })

class ScheduleRunner {
  readonly #shell: Shell
  readonly #last = new Map<string, Millis>()
  readonly #missed = new MissedTicks(clocks())
  #draining: Promise<void> | null = null

  constructor(shell: Shell) {
    this.#shell = shell
  }

  async begin(): Promise<void> {
    const last = await this.#insist(() => callPeer(this.#shell, { method: 'lastTicks', params: null }))
    for (const [id, tickMs] of Object.entries(last)) this.#last.set(id, tickMs)
  }

  /** Sends what is due. Returns the pause before the next turn. */
  async turn(): Promise<Millis> {
    let pauseMs = TURN_EVERY_MS
    for (const schedule of await readSchedules(this.#shell.profile))
      pauseMs = Math.min(pauseMs, await this.#serve(schedule))
    return pauseMs
  }

  async #serve(schedule: Schedule): Promise<Millis> {
    const cron = parseCron(schedule, schedule.createdAtMs)
    for (;;) {
      const lastMs = this.#last.get(schedule.id) ?? schedule.createdAtMs
      const now = clocks()
      this.#missed.look(now)
      const terms = { nowMs: now.wallMs, missedUntilMs: this.#missed.untilMs, missed: schedule.missed }
      const due: Millis[] = []
      const next = () => dueTick(cron, { ...terms, lastMs: due.at(-1) ?? lastMs })
      for (let tickMs = next(); tickMs !== null && due.length < TICKS_MAX; tickMs = next()) due.push(tickMs)
      if (due.length === 0) return Math.max(1, (cron.nextRun(new Date(lastMs))?.getTime() ?? Infinity) - now.wallMs)
      await this.#send(schedule, due)
      this.#last.set(schedule.id, due.at(-1)!)
    }
  }

  /** Repeats the call until the ticks are recorded. A repetition sends nothing twice. */
  async #send(entry: Schedule, due: readonly Millis[]) {
    const { id: schedule, peers, groups, priority, ttlSeconds } = entry
    const ticks = await this.#ticksOf(entry, due)
    const params = { schedule, ticks, peers, groups, priority, ttlSeconds }
    const { sent, isDrained } = await this.#insist(() => callPeer(this.#shell, { method: 'sendTicks', params }))
    if (!isDrained) this.#drain()
    const { output } = this.#shell
    for (const tickMs of sent) {
      if (output.isJson) await output.result({ schedule, tickMs }, () => '')
      else output.info(`${schedule}: sent the message of ${new Date(tickMs).toISOString()}`)
    }
  }

  /** Returns the message of each tick. Uploads a long text for each one, because the file of an earlier tick expires. */
  async #ticksOf(schedule: Schedule, due: readonly Millis[]): Promise<TickParams['ticks']> {
    const text = await completeTextOf(this.#shell.profile, schedule)
    const ticks: TickParams['ticks'][number][] = []
    for (const tickMs of due) {
      const content = contentOf(Buffer.from(text.replaceAll('{tick}', new Date(tickMs).toISOString())))
      const isLong = content.bytes > BODY_BYTES_MAX
      const upload = async () => content.upload(this.#shell, await this.#readersOf(schedule))
      const file = isLong ? await this.#insist(upload) : null
      ticks.push({ tickMs, bodyBase64: base64Of(content), ...(file && { attachment: file.text }) })
    }
    return ticks
  }

  async #readersOf({ peers, groups: ids }: Schedule): Promise<FileReaders> {
    const groups = ids.length === 0 ? [] : await callPeer(this.#shell, { method: 'groups', params: null })
    return readersOf(this.#shell, { peers, groups: groups.filter(({ id }) => ids.includes(id)) })
  }

  /** Sends what an outage left in the outbox, in the background, so that later ticks are recorded in time. */
  #drain(): void {
    this.#draining ??= this.#insist(() => callPeer(this.#shell, { method: 'drain', params: null }))
      .catch(() => undefined) // the next call of this command reports the error
      .then(() => {
        this.#draining = null
      })
  }

  async #insist<T>(attempt: () => Promise<T>): Promise<T> {
    for (let turn = 1; ; turn++) {
      try {
        return await attempt()
      } catch (error) {
        const { code = '', message } = error as { code?: string; message: string }
        if (this.#shell.signal.aborted || !PASSING.has(code)) throw error
        if (turn === 1) this.#shell.output.warn(`${message} (${code}); trying again`)
      }
      await abortable(delay(RETRY_AFTER_MS), this.#shell.signal)
    }
  }
}

/** The errors after which a call is repeated. */
const PASSING: ReadonlySet<string> = new Set([
  'unreachable',
  'maybe_sent',
  'kept_for_later',
  'closed',
  'superseded',
  'store_in_use',
  'outbox_full',
  'daemon_version',
  'connection_lost',
])
