/** Keeps a profile's schedules in a file, and determines their ticks. */
import { randomBytes } from 'node:crypto'
import { mkdir, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { BODY_BYTES_MAX } from '@sealpost/protocol'
import type { GroupId, PeerKey, Priority } from '@sealpost/sdk'
import { type Millis, OperatingError } from '@sealpost/std'
import { Cron } from 'croner'
import { contentOf } from '../messages/content.ts'
import {
  fileUnwritable,
  isRecord,
  type Profile,
  readJsonFile,
  readTextFile,
  updateJsonFile,
  writeSynced,
} from '../profile/profile.ts'

/** `once`: the latest missed tick is sent. `skip`: no missed tick is sent. */
export type MissedPolicy = 'once' | 'skip'

export interface Schedule {
  readonly id: string
  readonly cron: string
  readonly timeZone: string
  readonly missed: MissedPolicy
  /** The recipients as the user wrote them. */
  readonly to: string
  readonly peers: readonly PeerKey[]
  readonly groups: readonly GroupId[]
  /** The text, or its beginning if it has a file. */
  readonly text: string
  /** Whether a file in the profile contains the complete text, because it exceeds the limit of a message. */
  readonly isLong?: boolean
  readonly priority: Priority
  readonly ttlSeconds: number
  readonly createdAtMs: Millis
}

const SCHEDULES_MAX = 100

/**
 * Parses a cron expression.
 * @throws OperatingError `schedule_malformed`, also if the expression never matches a time
 */
export function parseCron({ cron, timeZone }: Pick<Schedule, 'cron' | 'timeZone'>, nowMs: Millis): Cron {
  const parsed = cronOf(cron, timeZone, nowMs)
  if (parsed.next) return parsed.cron
  throw new OperatingError('schedule_malformed', `No time matches the cron expression ${JSON.stringify(cron)}.`)
}

function cronOf(text: string, timeZone: string, nowMs: Millis): { cron: Cron; next: Date | null } {
  try {
    const cron = new Cron(text, { timezone: timeZone, paused: true })
    return { cron, next: cron.nextRun(new Date(nowMs)) }
  } catch (cause) {
    throw new OperatingError(
      'schedule_malformed',
      `${JSON.stringify(text)} is not a cron expression such as "0 9 * * MON-FRI", or ${JSON.stringify(timeZone)} is not a time zone such as Europe/Zurich.`,
      { cause },
    )
  }
}

interface TickQuestion {
  /** The latest tick that was sent. */
  readonly lastMs: Millis
  readonly nowMs: Millis
  /** Ticks up to this time were missed. Later ones are sent, however late. */
  readonly missedUntilMs: Millis
  readonly missed: MissedPolicy
}

/** Returns the tick to send now, and null if none is due. Each tick is the time that the expression names, in ms. */
export function dueTick(cron: Cron, question: TickQuestion): Millis | null {
  const { lastMs, nowMs, missedUntilMs, missed } = question
  const next = cron.nextRun(new Date(lastMs))?.getTime()
  if (next === undefined || next > nowMs) return null
  if (next > missedUntilMs) return next
  const [latest] = cron.previousRuns(1, new Date(missedUntilMs + 1))
  const missedMs = Math.max(next, latest?.getTime() ?? next)
  return missed === 'once' ? missedMs : dueTick(cron, { ...question, lastMs: missedMs })
}

/** How late a tick may be at the start, or after the clock was set, without counting as missed. */
const LATE_MS = 60_000

export interface Clocks {
  readonly wallMs: Millis
  /** A clock that is never set and stands still while the machine sleeps. */
  readonly steadyMs: Millis
}

/**
 * Determines until when ticks were missed. A tick is missed if nothing ran at its time, or if the clock was set past
 * it. A tick that only waited for other ticks is not missed.
 */
export class MissedTicks {
  #last: Clocks
  untilMs: Millis

  constructor(start: Clocks) {
    this.#last = start
    this.untilMs = start.wallMs - LATE_MS
  }

  /** Call at each look at the clocks. */
  look(now: Clocks): void {
    const jumpMs = now.wallMs - this.#last.wallMs - (now.steadyMs - this.#last.steadyMs)
    if (jumpMs > LATE_MS) this.untilMs = now.wallMs - LATE_MS
    this.#last = now
  }
}

async function writeTextFile(path: string, text: Uint8Array): Promise<void> {
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 })
    await writeSynced(path, text, 0o600)
  } catch (cause) {
    throw fileUnwritable(path, cause)
  }
}

const fileOf = ({ folder }: Profile): string => join(folder, 'schedules.json')

interface ScheduleFile {
  readonly schedules: readonly Schedule[]
}

const isScheduleFile = (value: unknown): value is ScheduleFile => isRecord(value) && Array.isArray(value.schedules)

export async function readSchedules(profile: Profile): Promise<readonly Schedule[]> {
  return (await readJsonFile(fileOf(profile), isScheduleFile))?.schedules ?? []
}

const textFileOf = ({ folder }: Profile, id: string): string => join(folder, 'schedules', `${id}.txt`)

/** Returns the complete text of a schedule. @throws OperatingError `file_unreadable` */
export async function completeTextOf(profile: Profile, { id, text, isLong = false }: Schedule): Promise<string> {
  return (isLong ? await readTextFile(textFileOf(profile, id)) : undefined) ?? text
}

/** Adds a schedule. @throws OperatingError `too_many_schedules`, `file_unwritable` */
export async function addSchedule(profile: Profile, { text, ...fields }: Omit<Schedule, 'id'>): Promise<Schedule> {
  const id = randomBytes(4).toString('hex')
  const bytes = Buffer.from(text)
  const isLong = bytes.length > BODY_BYTES_MAX
  if (isLong) await writeTextFile(textFileOf(profile, id), bytes)
  const beginning = isLong ? new TextDecoder().decode(contentOf(bytes).body) : text
  const schedule: Schedule = { id, ...fields, text: beginning, ...(isLong && { isLong }) }
  await updateJsonFile(fileOf(profile), isScheduleFile, (file) => {
    const schedules = file?.schedules ?? []
    if (schedules.length < SCHEDULES_MAX) return { schedules: [...schedules, schedule] }
    throw new OperatingError('too_many_schedules', `A profile can have at most ${SCHEDULES_MAX} schedules.`)
  })
  return schedule
}

/** Removes a schedule. @throws OperatingError `schedule_unknown` */
export async function removeSchedule(profile: Profile, id: string): Promise<void> {
  await updateJsonFile(fileOf(profile), isScheduleFile, (file) => {
    const schedules = file?.schedules ?? []
    if (schedules.some((schedule) => schedule.id === id))
      return { schedules: schedules.filter((schedule) => schedule.id !== id) }
    throw new OperatingError('schedule_unknown', 'There is no schedule with this id. `schedule list` lists the ids.')
  })
  await rm(textFileOf(profile, id), { force: true })
}
