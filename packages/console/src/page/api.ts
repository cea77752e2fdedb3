/** Asks the operators' interface of the broker that served this page, with the token of this tab. */
import type { Overview, Sample, SampleHistory } from '@sealpost/operator'
import { binaryBytes, wholeUnits } from '@sealpost/operator/texts'
import { EventSourceParserStream } from 'eventsource-parser/stream'
import { useCallback, useEffect, useRef, useState } from 'preact/hooks'

export class Refused extends Error {
  readonly code: string

  constructor(code: string, meaning: string) {
    super(meaning)
    this.code = code
  }
}

type Query = Readonly<Record<string, string | number | undefined>>

const PATH = '/admin/v1'
const AWAY = new Refused('unreachable', 'The broker does not answer.')

export class Api {
  readonly #token: string
  /** The token is good no longer. */
  onExpelled: () => void = () => undefined

  constructor(token: string) {
    this.#token = token
  }

  /** @throws Refused */
  async get<T>(path: string, query: Query = {}): Promise<T> {
    const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== '')
    const words = new URLSearchParams(given.map(([name, value]) => [name, String(value)]))
    return this.#ask<T>(given.length > 0 ? `${path}?${words}` : path, {})
  }

  /** @throws Refused */
  post<T>(path: string, body: object = {}): Promise<T> {
    const headers = { 'Content-Type': 'application/json' }
    return this.#ask<T>(path, { method: 'POST', headers, body: JSON.stringify(body) })
  }

  /** Resolves when the stream has ended. @throws Refused */
  async listen(heard: (overview: Overview) => void, signal: AbortSignal): Promise<void> {
    const response = await this.#fetch('/live', { signal })
    const events = response.body!.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream())
    const reader = events.getReader()
    for (;;) {
      const { done, value } = await reader.read().catch(() => ({ done: true, value: undefined }))
      if (done || !value) return
      if (value.event === 'overview') heard(JSON.parse(value.data) as Overview)
    }
  }

  async #ask<T>(path: string, init: RequestInit): Promise<T> {
    const response = await this.#fetch(path, init)
    return response.status === 204 ? (undefined as T) : ((await response.json()) as T)
  }

  async #fetch(path: string, init: RequestInit): Promise<Response> {
    const headers = { ...init.headers, Authorization: `Bearer ${this.#token}` }
    const response = await fetch(PATH + path, { ...init, headers }).catch(() => {
      throw AWAY
    })
    if (response.ok) return response
    const { code = 'internal', meaning = '' } = await response.json().catch(() => ({}))
    if (code === 'token_invalid') this.onExpelled()
    throw new Refused(code, meaning)
  }
}

/** Figures as people read them. */
export const age = (ms: number | null): string => (ms === null ? '–' : wholeUnits(ms))

export const count = (value: number): string => Math.round(value).toLocaleString('en')
export const rate = (value: number): string => (value > 0 && value < 10 ? value.toFixed(1) : count(value))
export const millis = (ms: number | null): string =>
  ms === null
    ? '–'
    : ms === 0
      ? '0 ms'
      : ms >= 1000
        ? `${(ms / 1000).toFixed(1)} s`
        : `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`

export const bytes = (value: number | null): string => (value === null ? '–' : binaryBytes(value))

export const instant = (ms: number | null): string =>
  ms === null ? '–' : new Date(ms).toLocaleString('en-GB', { dateStyle: 'medium', timeStyle: 'short' })

export const short = (key: string): string => `${key.slice(0, 8)}…`
export const named = (name: string | null, key: string): string => name ?? short(key)
export const plain = (code: string): string => code.replaceAll('_', ' ').replaceAll('.', ': ')

/** They are counted up to a thousand. */
export const deadCount = ({ deadLetters }: { deadLetters: number }): string =>
  deadLetters < 1000 ? count(deadLetters) : '1,000+'

/** What a view asks for, and how far that is: every view shows all three states. */
export type Fetched<T> =
  | { readonly state: 'loading' }
  | { readonly state: 'failed'; readonly why: string }
  /** `why`: asking again failed; what is shown is from before. */
  | { readonly state: 'ready'; readonly value: T; readonly why: string | null }

export const whyOf = (error: unknown): string => {
  if (!(error instanceof Refused)) throw error
  return error.message.replaceAll('`', '').replace(/^./, (letter) => letter.toUpperCase())
}

/** Asks at once, whenever `about` changes, every `everyMs`, and when told to. */
export function useAsked<T>(about: string, ask: () => Promise<T>, everyMs = 5000): [Fetched<T>, () => void] {
  const [asked, setAsked] = useState<Fetched<T>>({ state: 'loading' })
  const current = useRef(about)
  const asking = useRef(ask)
  current.current = about
  asking.current = ask
  const again = useCallback(async () => {
    const before = current.current
    const answered = (next: (was: Fetched<T>) => Fetched<T>) => before === current.current && setAsked(next)
    try {
      const value = await asking.current()
      answered(() => ({ state: 'ready', value, why: null }))
    } catch (error) {
      const why = whyOf(error)
      answered((was) => (was.state === 'ready' ? { ...was, why } : { state: 'failed', why }))
    }
  }, [])
  useEffect(() => {
    setAsked({ state: 'loading' })
    void again()
    const timer = setInterval(() => void again(), everyMs)
    return () => clearInterval(timer)
  }, [about, everyMs, again])
  return [asked, () => void again()]
}

/** The token of this tab: it comes in the fragment, which no server sees, leaves the address bar at once, and ends with the tab. */

const NAME = 'sealpost admin token'
const IN_FRAGMENT = /^#(spa_[0-9a-f]{16}_[A-Za-z0-9_-]{43})$/

export function takeToken(): string | null {
  const fresh = IN_FRAGMENT.exec(location.hash)?.[1]
  if (!fresh) return sessionStorage.getItem(NAME)
  history.replaceState(null, '', '#/')
  keepToken(fresh)
  return fresh
}

export const keepToken = (token: string): void => sessionStorage.setItem(NAME, token)
export const forgetToken = (): void => sessionStorage.removeItem(NAME)

/** The overview as it changes, and the last half hour before it. */
export interface Live {
  readonly overview: Overview | null
  readonly samples: readonly Sample[]
  /** Why nothing is heard; null while something is. */
  readonly away: string | null
}

const AGAIN_MIN_MS = 1000
const AGAIN_MAX_MS = 15_000
const SAMPLES_MAX = 900

export function useLive(api: Api): Live {
  const [live, setLive] = useState<Live>({ overview: null, samples: [], away: null })
  useEffect(() => {
    const gone = new AbortController()
    void follow(api, gone.signal, (change) => setLive((was) => ({ ...was, ...change(was) })))
    return () => gone.abort()
  }, [api])
  return live
}

type Change = (change: (was: Live) => Partial<Live>) => void

async function follow(api: Api, signal: AbortSignal, change: Change): Promise<void> {
  for (let pauseMs = AGAIN_MIN_MS; !signal.aborted; pauseMs = Math.min(AGAIN_MAX_MS, 2 * pauseMs)) {
    try {
      const { samples } = await api.get<SampleHistory>('/history')
      change(() => ({ samples }))
      await api.listen((overview) => {
        pauseMs = AGAIN_MIN_MS
        change((was) => ({ overview, away: null, samples: [...was.samples, overview.now].slice(-SAMPLES_MAX) }))
      }, signal)
    } catch (error) {
      if (!signal.aborted) change(() => ({ away: whyOf(error) }))
    }
    await new Promise((resolve) => setTimeout(resolve, pauseMs))
  }
}
