/**
 * Watches how many descriptors this process may still open. A connection takes one as soon as the kernel accepts it, before
 * any limit of an address can count it. When none is left, the port is closed until there is room again: the event loop would
 * otherwise spin on connections that it can't accept, and Postgres and files would get none. A reserve is held for them.
 */
import { closeSync, openSync } from 'node:fs'
import { devNull } from 'node:os'
import { errorFields, type Log } from '../telemetry/log.ts'

export const DESCRIPTORS_LOOK_EVERY_MS = 250
/** For connections to Postgres, name look-ups and files while the port is closed. */
export const DESCRIPTORS_RESERVED = 64
/** With fewer descriptors free beside the reserve, the broker admits no new session. Opening all of them takes 190 µs. */
export const DESCRIPTORS_FREE_MIN = 32

/** The public port. */
export interface Port {
  /** Listens no more, and keeps its connections. */
  pause(): void
  /** Listens again. */
  resume(): void
  /** Closes kept-alive connections without a request. */
  closeIdle(): void
}

/** Opens a descriptor that does nothing. @throws when there is none */
export interface Opener {
  open(): number
  close(descriptor: number): void
}

const nothing: Opener = { open: () => openSync(devNull, 'r'), close: closeSync }

export class Descriptors {
  state: 'free' | 'few' | 'none' = 'free'
  #reserve: number[]
  readonly #port: Port
  readonly #log: Log
  readonly #opener: Opener

  constructor(port: Port, log: Log, opener: Opener = nothing) {
    this.#port = port
    this.#log = log
    this.#opener = opener
    this.#reserve = this.#take(DESCRIPTORS_RESERVED)
  }

  look(): void {
    if (this.state === 'none') this.#lookForRoom()
    else this.#lookForEnd()
  }

  stop(): void {
    this.#release(this.#reserve.splice(0))
  }

  #lookForEnd(): void {
    const spare = this.#take(DESCRIPTORS_FREE_MIN)
    this.#release(spare)
    if (spare.length === 0) return this.#close()
    const hasRoom = spare.length === DESCRIPTORS_FREE_MIN
    if (!hasRoom) this.#port.closeIdle()
    if (!hasRoom && this.state === 'free') this.#log.warn('descriptors.few', { free: spare.length })
    this.state = hasRoom ? 'free' : 'few'
  }

  #close(): void {
    this.state = 'none'
    this.#release(this.#reserve.splice(0))
    this.#port.pause()
    this.#port.closeIdle()
    this.#log.error('descriptors.none')
  }

  #lookForRoom(): void {
    this.#port.closeIdle()
    const taken = this.#take(DESCRIPTORS_RESERVED + DESCRIPTORS_FREE_MIN)
    if (taken.length < DESCRIPTORS_RESERVED + DESCRIPTORS_FREE_MIN) return this.#release(taken)
    this.#release(taken.splice(DESCRIPTORS_RESERVED))
    try {
      this.#port.resume()
    } catch (error) {
      this.#release(taken)
      return this.#log.error('descriptors.port_lost', errorFields(error))
    }
    this.#reserve = taken
    this.state = 'free'
    this.#log.info('descriptors.free')
  }

  /** At most so many; fewer when there are no more. */
  #take(count: number): number[] {
    const taken: number[] = []
    try {
      while (taken.length < count) taken.push(this.#opener.open())
    } catch {} // EMFILE or ENFILE: what was opened is all there is
    return taken
  }

  #release(descriptors: readonly number[]): void {
    for (const descriptor of descriptors) this.#opener.close(descriptor)
  }
}

export interface DescriptorWatch {
  readonly areFew: boolean
  readonly isPortClosed: boolean
  stop(): void
}

export function watchDescriptors(port: Port, log: Log): DescriptorWatch {
  const descriptors = new Descriptors(port, log)
  const timer = setInterval(() => descriptors.look(), DESCRIPTORS_LOOK_EVERY_MS)
  timer.unref()
  return {
    get areFew() {
      return descriptors.state !== 'free'
    },
    get isPortClosed() {
      return descriptors.state === 'none'
    },
    stop: () => {
      clearInterval(timer)
      descriptors.stop()
    },
  }
}
