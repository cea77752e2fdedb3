/** Appends the statements from before the log to the logs of their meshes, a batch at a time (docs/adr/0023). */
import type { Database } from '@sealpost/pg'
import { type Millis, OperatingError } from '@sealpost/std'
import { backfillLogs } from '@sealpost/store'
import { errorFields, type Log } from '../telemetry/log.ts'

/** A batch takes about 0.1 s, in which new statements of its mesh wait. */
const BATCH = 1000
/** The pause after a batch, for the statements that wait. */
const PAUSE_MS: Millis = 20
/** How often to look for a mesh with an incomplete log, because one can arrive from another cell. */
const LOOK_EVERY_MS: Millis = 60_000
/** The pause after a statement that failed. */
const FAILED_MS: Millis = 30_000

export class LogBackfill {
  readonly #db: Database
  readonly #log: Log
  #timer: ReturnType<typeof setTimeout> | undefined
  #isStopped = false

  constructor(db: Database, log: Log) {
    this.#db = db
    this.#log = log
    this.#start()
  }

  stop(): void {
    this.#isStopped = true
    clearTimeout(this.#timer)
  }

  #start(): void {
    void this.#runOnce().then((pauseMs) => {
      if (!this.#isStopped) this.#timer = setTimeout(() => this.#start(), pauseMs)
    })
  }

  /** Returns the time until the next batch. */
  async #runOnce(): Promise<Millis> {
    try {
      return (await backfillLogs(this.#db, BATCH)) ? PAUSE_MS : LOOK_EVERY_MS
    } catch (error) {
      if (!(error instanceof OperatingError)) throw error
      if (!this.#isStopped) this.#log.warn('mesh_log.failed', errorFields(error))
      return FAILED_MS
    }
  }
}
