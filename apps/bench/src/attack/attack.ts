/**
 * Defines attacks and their building blocks: connections from any address of 127.0.0.0/8, a steady rate, and a member
 * over HTTP.
 */
import { connect, type Socket } from 'node:net'
import { HttpPeer } from '@sealpost/broker/testing-http'
import { hash256, type Identity } from '@sealpost/identity'
import type { MeshId, PeerKey } from '@sealpost/std'

/** The broker under attack, and a mesh on it. */
export interface AttackTarget {
  /** The broker's WebSocket URL, such as `ws://127.0.0.1:port/v1/ws`. */
  readonly url: string
  readonly httpUrl: string
  readonly brokerKey: PeerKey
  readonly meshId: MeshId
}

export interface StageMember {
  readonly identity: Identity
}

export interface AttackContext {
  readonly target: AttackTarget
  /** The members that the attacker has enrolled. */
  readonly members: readonly StageMember[]
  /** Aborts at the end of the turn. */
  readonly signal: AbortSignal
  /** Counts a reply by its status, close code or chosen name. */
  readonly count: (answer: string | number) => void
}

/** What honest peers do once a second besides messages, from another address. */
export type ProbeKind = 'join' | 'file' | 'replay'

export interface Attack {
  readonly name: string
  /** The attack's description in `--list`. */
  readonly does: string
  readonly members?: number
  /** Whether the attack comes from one unauthenticated address, and so may cost 5 % of a core. */
  readonly isOneUnprovenAddress?: true
  /** Default: `join`. */
  readonly probe?: ProbeKind
  /** Whether the mesh has a history (`HISTORY`). */
  readonly hasHistory?: true
  /** The broker's settings. */
  readonly env?: Readonly<Record<string, string>>
  /** Attacks until `signal` aborts, and returns within a second. */
  readonly run: (context: AttackContext) => Promise<void>
}

/** The history, larger than socket buffers, so that a slow reader determines a replay's duration. */
export const HISTORY = { entries: 10_000, bytes: 20_000_000, events: 10_000 }

/** Calls `act` this often per second, evenly, without waiting for earlier calls. */
export async function atPace(perSecond: number, signal: AbortSignal, act: (no: number) => void): Promise<void> {
  const startedAt = performance.now()
  for (let no = 0; !signal.aborted; no++) {
    act(no)
    const dueAt = startedAt + ((no + 1) * 1000) / perSecond
    await Bun.sleep(Math.max(0, dueAt - performance.now()))
  }
}

/** Calls `act` in this number of concurrent loops. */
export async function inLoops(count: number, signal: AbortSignal, act: (no: number) => Promise<void>): Promise<void> {
  const loop = async (no: number) => {
    while (!signal.aborted) await act(no)
  }
  await Promise.all(Array.from({ length: count }, (_, no) => loop(no)))
}

/** Connects from this address. Ignores errors, which close the socket anyway. */
export function dial(port: number, from: string): Socket {
  const socket = connect({ port, host: '127.0.0.1', localAddress: from })
  socket.on('error', () => undefined)
  return socket
}

/** Sends a request. Resolves with the response's status, or with `cut`. */
export function statusOf(socket: Socket, request: Uint8Array | string, signal: AbortSignal): Promise<string> {
  return new Promise((resolve) => {
    const end = (status: string) => {
      socket.destroy()
      signal.removeEventListener('abort', cut)
      resolve(status)
    }
    const cut = () => end('cut')
    signal.addEventListener('abort', cut, { once: true })
    socket.on('data', (bytes) => end(statusIn(bytes)))
    socket.on('close', cut)
    socket.write(request)
  })
}

export const statusIn = (bytes: Uint8Array | string): string =>
  /^HTTP\/1\.1 (\d+)/.exec(Buffer.from(bytes).toString('latin1', 0, 32))?.[1] ?? 'garbled'

export const portOf = (target: { readonly url: string }): number => Number(new URL(target.url).port)

/** Returns a complete POST request with a JSON body. */
export function postOf(target: { readonly url: string }, path: string, body: string, headers: string[] = []): string {
  const { host } = new URL(target.url)
  const lines = [`POST ${path} HTTP/1.1`, `Host: ${host}`, 'Content-Type: application/json', ...headers]
  return [...lines, `Content-Length: ${body.length}`, 'Connection: close', '', body].join('\r\n')
}

export class HttpMember {
  readonly #peer: HttpPeer
  readonly #place: AttackTarget & StageMember

  private constructor(peer: HttpPeer, place: AttackTarget & StageMember) {
    this.#peer = peer
    this.#place = place
  }

  static async enter(place: AttackTarget & StageMember): Promise<HttpMember> {
    return new HttpMember(await HttpPeer.enter(place), place)
  }

  /** Returns the head of a request without its final empty line. */
  head(method: string, path: string): string {
    const { host } = new URL(this.#place.url)
    const { Authorization } = this.#peer.headers
    return `${method} ${path} HTTP/1.1\r\nHost: ${host}\r\nAuthorization: ${Authorization}\r\nConnection: close\r\n`
  }

  /** Returns the path of all events after `after` in the mesh's space. */
  replayPath(after: number): string {
    const { meshId } = this.#place
    return `/v1/meshes/${meshId}/history?space=${meshId}&after=${after}`
  }

  async replay(after: number): Promise<boolean> {
    const response = await fetch(`${this.#place.httpUrl}${this.replayPath(after)}`, { headers: this.#peer.headers })
    const { status } = response
    const text = await response.text()
    return status === 200 && text.trimEnd().endsWith('}') && text.includes('"end":true')
  }

  /** Creates an attachment for this member only. @returns its id */
  async createAttachment(bytes: number, chunkBytes: number): Promise<string> {
    const id = crypto.getRandomValues(new Uint8Array(16)).toHex()
    const recipients = [this.#place.identity.signing.publicKey]
    await this.#peer.post(`/v1/meshes/${this.#place.meshId}/attachments`, { id, bytes, chunkBytes, recipients })
    return id
  }

  async putChunk(id: string, chunkNo: number, content: Uint8Array<ArrayBuffer>): Promise<boolean> {
    const hash = Buffer.from(hash256(content)).toString('base64url')
    const url = `${this.#place.httpUrl}/v1/meshes/${this.#place.meshId}/attachments/${id}/chunks/${chunkNo}?hash=${hash}`
    const { status } = await fetch(url, { method: 'PUT', headers: this.#peer.headers, body: content })
    return status === 204
  }
}
