/** Sockets to a Postgres server, and the one thing that is said on a socket of its own. */
import { connect, isIP, type Socket } from 'node:net'
import type { Address } from './database-error.ts'

export function openSocket({ host, port }: Address): Socket {
  const socket = host.startsWith('/') ? connect(`${host}/.s.PGSQL.${port}`) : connect(port, host)
  socket.setNoDelay(true)
  return Object.assign(socket, isIP(host) ? {} : { host }) // the driver reads `host` for the certificate's name
}

export function destroy(socket: Socket | undefined): void {
  // The driver takes its listeners off when a socket closes; an error after that would end the process.
  socket?.on('error', () => undefined)
  socket?.destroy()
}

/** What the server tells a connection of itself when it begins. */
export interface Backend {
  readonly pid: number
  readonly secret: number
}

const CANCEL_REQUEST = 80_877_102
const PATIENCE_MS = 5_000

/**
 * A statement whose connection was cut goes on as long as it waits for a lock, and holds what it has locked. The server's
 * own timeouts should end it; they go by the clock of the wall, and one that was set back puts them off as far. Nothing
 * is said of success: the statement may be over, or the server away.
 */
export function cancelStatement(address: Address, { pid, secret }: Partial<Backend>): void {
  if (!pid || secret === undefined) return // it was cut before it began
  const request = Buffer.alloc(16)
  for (const [i, word] of [request.length, CANCEL_REQUEST, pid, secret].entries()) request.writeInt32BE(word | 0, 4 * i)
  const socket = openSocket(address)
  const timer = setTimeout(() => destroy(socket), PATIENCE_MS)
  timer.unref()
  socket.on('error', () => undefined)
  socket.on('close', () => clearTimeout(timer))
  socket.end(request)
}
