/**
 * The runs of the broker in one process. A run ends when the database was replaced by one that is missing something, and
 * the next one begins under the new incarnation, on the same ports. What a run knew of the database ends with it.
 */
import { portOf } from '@sealpost/identity'
import { type Millis, OperatingError } from '@sealpost/std'
import type { Config } from './config/config.ts'
import { errorFields, type Log } from './telemetry/log.ts'

export interface RunningBroker {
  readonly url: string
  readonly adminUrl: string
  stop(): Promise<void>
  /** Ends at once, and asks each peer to come back at another moment. */
  leave(): Promise<void>
}

export type StartRun = (config: Config, replaced: () => void) => Promise<RunningBroker>

const AGAIN_AFTER_MS: Millis = 500

export class Runs {
  readonly #config: Config
  readonly #log: Log
  readonly #start: StartRun
  #current: Promise<RunningBroker>
  #isOver = false

  constructor(config: Config, log: Log, start: StartRun) {
    this.#config = config
    this.#log = log
    this.#start = start
    this.#current = this.#begin(config)
  }

  /** Resolves when the first run is ready. @throws OperatingError when it can't start */
  async ready(): Promise<void> {
    await this.#current
  }

  async stop(): Promise<void> {
    this.#isOver = true
    await (await this.#current).stop()
  }

  #begin(config: Config): Promise<RunningBroker> {
    const run = this.#start(config, () => {
      if (!this.#isOver) this.#current = run.then((former) => this.#follow(former))
    })
    return run
  }

  async #follow(former: RunningBroker): Promise<RunningBroker> {
    await former.leave()
    const config = { ...this.#config, PORT: portOf(former.url), ADMIN_PORT: portOf(former.adminUrl) }
    while (!this.#isOver) {
      try {
        return await this.#begin(config)
      } catch (error) {
        if (!(error instanceof OperatingError)) throw error
        this.#log.error('broker.not_restarted', errorFields(error))
        await new Promise((resolve) => setTimeout(resolve, AGAIN_AFTER_MS))
      }
    }
    return { ...former, stop: () => Promise.resolve() }
  }
}
