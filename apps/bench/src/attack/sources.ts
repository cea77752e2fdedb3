/** What attacks are made of: raw connections from any address of 127.0.0.0/8, and a pace. */
import { connect, type Socket } from 'node:net'

/** Acts at this rate per second, evenly, and doesn't wait for one before the next. */
export async function atPace(perSecond: number, signal: AbortSignal, act: (no: number) => void): Promise<void> {
  const startedAt = performance.now()
  for (let no = 0; !signal.aborted; no++) {
    act(no)
    const dueAt = startedAt + ((no + 1) * 1000) / perSecond
    await Bun.sleep(Math.max(0, dueAt - performance.now()))
  }
}

/** Acts again and again, in this number of concurrent loops. */
export async function inLoops(count: number, signal: AbortSignal, act: (no: number) => Promise<void>): Promise<void> {
  const loop = async (no: number) => {
    while (!signal.aborted) await act(no)
  }
  await Promise.all(Array.from({ length: count }, (_, no) => loop(no)))
}

/** A connection from this address. It answers no error: what ends it is told by `ended`. */
export function dial(port: number, from: string): Socket {
  const socket = connect({ port, host: '127.0.0.1', localAddress: from })
  socket.on('error', () => undefined)
  return socket
}

/** Sends one request and returns the status of its answer, or `cut` when the connection ends before one. */
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

/** Of the first bytes of an answer. */
export const statusIn = (bytes: Uint8Array | string): string =>
  /^HTTP\/1\.1 (\d+)/.exec(Buffer.from(bytes).toString('latin1', 0, 32))?.[1] ?? 'garbled'

export const portOf = (target: { readonly url: string }): number => Number(new URL(target.url).port)

/** A POST of JSON in one piece. */
export function postOf(target: { readonly url: string }, path: string, body: string, headers: string[] = []): string {
  const { host } = new URL(target.url)
  const lines = [`POST ${path} HTTP/1.1`, `Host: ${host}`, 'Content-Type: application/json', ...headers]
  return [...lines, `Content-Length: ${body.length}`, 'Connection: close', '', body].join('\r\n')
}
