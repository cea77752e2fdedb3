/** Asks the operators' interface of the broker that served this page, with the token of this tab. */
import type { Overview } from '@sealpost/operator'
import { EventSourceParserStream } from 'eventsource-parser/stream'

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
