/** The API client, and the components of all views. */
import type { Flow, MeshState, Overview, Sample, SampleHistory } from '@sealpost/operator'
import { binaryBytes, wholeUnits } from '@sealpost/operator/texts'
import { EventSourceParserStream } from 'eventsource-parser/stream'
import type { ComponentChildren } from 'preact'
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
const AWAY = new Refused('unreachable', 'The broker does not respond.')

export class Api {
  readonly #token: string
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

/** Formats a number of dead letters, which stops at a thousand. */
export const deadCount = ({ deadLetters }: { deadLetters: number }): string =>
  deadLetters < 1000 ? count(deadLetters) : '1,000+'

/** A loaded value. Every view renders all of its states. */
export type Fetched<T> =
  | { readonly state: 'loading' }
  | { readonly state: 'failed'; readonly why: string }
  /** `why`: why the last refresh failed, and the value is outdated. */
  | { readonly state: 'ready'; readonly value: T; readonly why: string | null }

export const whyOf = (error: unknown): string => {
  if (!(error instanceof Refused)) throw error
  return error.message.replaceAll('`', '').replace(/^./, (letter) => letter.toUpperCase())
}

/** Loads a value when `about` changes, every `everyMs`, and on request. */
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

/** The current overview and half an hour of samples. */
export interface Live {
  readonly overview: Overview | null
  readonly samples: readonly Sample[]
  /** Why no overview arrives; null while they do. */
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

/** Shows a value, or that it is loading, failed or empty. */
export function Shown<T>({
  asked,
  isEmpty,
  empty,
  children,
}: {
  asked: Fetched<T>
  isEmpty?: (value: T) => boolean
  empty?: string
  children: (value: T) => ComponentChildren
}) {
  // biome-ignore format: one thing
  if (asked.state === 'loading') return <p class="quiet pulse" role="status">Loading…</p> // biome-ignore format: one thing
  if (asked.state === 'failed') return <Problem>{asked.why}</Problem>
  return (
    <>
      {asked.why && <Problem>{asked.why} The data shown is out of date.</Problem>}
      {isEmpty?.(asked.value) ? <Empty>{empty}</Empty> : children(asked.value)}
    </>
  )
}

export const Problem = ({ children }: { children: ComponentChildren }) => (
  <p class="problem" role="alert">
    {children}
  </p>
)
export const Empty = ({ children }: { children: ComponentChildren }) => <p class="empty">{children}</p>

const FLOW_WORDS: Readonly<Record<Flow, string>> = {
  flowing: 'Flowing',
  waiting: 'Waiting',
  behind: 'Behind',
  unknown: 'Unknown',
}
/** Shapes in addition to colours, for readers who can't distinguish red from green. */
const FLOW_SHAPES: Readonly<Record<Flow, string>> = {
  flowing: 'M4 10.5 8 14.5 16 6',
  waiting: 'M10 3a7 7 0 1 1 0 14 7 7 0 0 1 0-14m0 3.5V10l2.5 1.5',
  behind: 'M10 3 18 17H2zm0 5v4m0 2.4v.1',
  unknown: 'M7 7.5a3 3 0 1 1 4 3c-.8.4-1 .9-1 2M10 15v.5',
}

function FlowBadge({ flow }: { flow: Flow }) {
  return (
    <span class={`badge ${flow}`}>
      <FlowIcon flow={flow} />
      {FLOW_WORDS[flow]}
    </span>
  )
}

/** Dead letters have a separate badge, because they don't affect the flow. */
export function MeshBadges({ mesh }: { mesh: MeshState }) {
  const isQuiet = mesh.flow === 'flowing' && mesh.deadLetters > 0
  return (
    <>
      {!isQuiet && <FlowBadge flow={mesh.flow} />}{' '}
      {mesh.deadLetters > 0 && (
        <span class="badge waiting">
          <FlowIcon flow="behind" />
          {deadCount(mesh)} dead letters
        </span>
      )}
    </>
  )
}

export const toneOf = ({ flow, deadLetters }: MeshState): Flow =>
  flow === 'flowing' && deadLetters > 0 ? 'waiting' : flow

export const FlowIcon = ({ flow }: { flow: Flow }) => (
  <svg viewBox="0 0 20 20" class="flow-icon" aria-hidden="true">
    <path d={FLOW_SHAPES[flow]} />
  </svg>
)

export function Tile({ label, value, hint }: { label: string; value: string; hint?: string }) {
  return (
    <div class="tile">
      <dt>{label}</dt>
      <dd>
        <strong>{value}</strong>
        {hint && <span class="quiet">{hint}</span>}
      </dd>
    </div>
  )
}

/** Shows a table that scrolls sideways, also by keyboard. */
export function Table({
  label,
  head,
  children,
}: {
  label: string
  head: readonly string[]
  children: ComponentChildren
}) {
  // biome-ignore format: one thing
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keys
    <section class="scroll" aria-label={label} tabIndex={0}>
      <table>
        <thead>
          <tr>
            {head.map((name) => (
              <th key={name} scope="col" class={name.startsWith('#') ? 'number' : undefined}>
                {name.replace('#', '') || <span class="unseen">Actions</span>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </section>
  )
}

export const Num = ({ children }: { children: ComponentChildren }) => <td class="number">{children}</td>

/** Shows a shortened key, and copies it on a click. */
export function Key({ value }: { value: string }) {
  const [isCopied, setCopied] = useState(false)
  const copy = async () => {
    await navigator.clipboard?.writeText(value)
    setCopied(true)
    setTimeout(() => setCopied(false), 1500)
  }
  return (
    <button type="button" class="key" title={value} aria-label={`Copy ${short(value)}`} onClick={() => void copy()}>
      {isCopied ? 'copied' : short(value)}
    </button>
  )
}

interface Question {
  readonly title: string
  readonly text: string
  readonly action: string
  readonly act: () => Promise<unknown>
}

/** Confirms an irreversible change. */
function Confirm({ question, close }: { question: Question | null; close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null)
  const [why, setWhy] = useState<string | null>(null)
  const [isActing, setActing] = useState(false)
  useEffect(() => {
    setWhy(null)
    if (question) dialog.current?.showModal()
    else dialog.current?.close()
  }, [question])
  const act = async () => {
    setActing(true)
    await question!.act().then(close, (error) => setWhy(whyOf(error)))
    setActing(false)
  }
  return (
    <dialog ref={dialog} onClose={close} aria-labelledby="question">
      {question && (
        <>
          <h2 id="question">{question.title}</h2>
          <p>{question.text}</p>
          {why && <Problem>{why}</Problem>}
          <div class="row end">
            <button type="button" class="plain" onClick={close}>
              Cancel
            </button>
            <button type="button" class="danger" disabled={isActing} onClick={() => void act()}>
              {question.action}
            </button>
          </div>
        </>
      )}
    </dialog>
  )
}

/** Returns a function that asks a question, and its dialog. */
export function useConfirm() {
  const [question, setQuestion] = useState<Question | null>(null)
  return { ask: setQuestion, dialog: <Confirm question={question} close={() => setQuestion(null)} /> }
}

interface PagerProps {
  /** The cursors of earlier pages. */
  readonly pages: readonly string[]
  readonly turn: (pages: readonly string[]) => void
  readonly next: string | null
}

export function Pager({ pages, turn, next }: PagerProps) {
  if (pages.length === 0 && next === null) return null
  return (
    <div class="row">
      <button type="button" class="plain" disabled={pages.length === 0} onClick={() => turn(pages.slice(0, -1))}>
        Back
      </button>
      <button type="button" class="plain" disabled={next === null} onClick={() => turn([...pages, next!])}>
        More
      </button>
    </div>
  )
}
