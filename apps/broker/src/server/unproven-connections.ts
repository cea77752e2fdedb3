/**
 * Connections without a proven key, by the prefixes of their client addresses, and which of them makes room for a new one
 * when there are too many.
 *
 * An attacker with many addresses usually has them in few networks: a /48 or a /56 of IPv6, a /24 of IPv4. A client takes the
 * place of the oldest connection of the fullest network, if its own network has fewer: an attacker displaces itself, and
 * clients that all come back at once displace nobody who is about to be served. One that has been silent for too long
 * makes room for anybody.
 */
import type { Millis } from '@sealpost/std'

/** From the `hello` to the `auth` of a client: a few round trips, and a phone that wakes up. */
export const SILENT_MS_MAX: Millis = 2_000

/** From the widest to the address itself; an IPv6 address comes as its /64. */
export function prefixesOf(clientAddress: string): readonly string[] {
  const groups = clientAddress.split(':')
  if (groups.length === 1) return [clientAddress.slice(0, clientAddress.lastIndexOf('.')), clientAddress]
  const network = groups.slice(0, 3).join(':')
  const subnet = Number.parseInt(groups[3]!, 16) >> 8
  return [`${network}/48`, `${network}:${subnet.toString(16)}/56`, clientAddress]
}

interface Entry {
  readonly prefixes: readonly string[]
  readonly sinceMs: Millis
  /** Nothing of it has arrived yet. */
  isSilent: boolean
}

export class UnprovenConnections<Connection> {
  readonly #entries = new Map<Connection, Entry>()
  readonly #all = new Network<Connection>()

  get size(): number {
    return this.#entries.size
  }

  add(connection: Connection, clientAddress: string, nowMs: Millis): void {
    const prefixes = prefixesOf(clientAddress)
    this.#entries.set(connection, { prefixes, sinceMs: nowMs, isSilent: true })
    this.#all.add(connection, prefixes)
  }

  /** Its first frame has come: from here on it waits for the broker. */
  heard(connection: Connection): void {
    const entry = this.#entries.get(connection)
    if (entry) entry.isSilent = false
  }

  delete(connection: Connection): void {
    const entry = this.#entries.get(connection)
    if (!entry) return
    this.#entries.delete(connection)
    this.#all.delete(connection, entry.prefixes)
  }

  /** Returns the connection that makes room for a client of this address; undefined: none has to. */
  victimFor(clientAddress: string, nowMs: Millis): Connection | undefined {
    const { victim, isFairer } = this.#all.oldestOfFullest(prefixesOf(clientAddress))
    const entry = victim === undefined ? undefined : this.#entries.get(victim)
    const isOverdue = entry?.isSilent === true && nowMs - entry.sinceMs >= SILENT_MS_MAX
    return isFairer || isOverdue ? victim : undefined
  }
}

/** The connections of a prefix, the oldest first, and the same of each narrower prefix in it. */
class Network<Connection> {
  readonly #connections = new Set<Connection>()
  readonly #parts = new Map<string, Network<Connection>>()

  add(connection: Connection, [prefix, ...narrower]: readonly string[]): void {
    this.#connections.add(connection)
    if (prefix === undefined) return
    const part = this.#parts.get(prefix) ?? new Network<Connection>()
    this.#parts.set(prefix, part)
    part.add(connection, narrower)
  }

  delete(connection: Connection, [prefix, ...narrower]: readonly string[]): void {
    this.#connections.delete(connection)
    const part = prefix === undefined ? undefined : this.#parts.get(prefix)
    if (!part) return
    part.delete(connection, narrower)
    if (part.#connections.size === 0) this.#parts.delete(prefix!)
  }

  /** `isFairer`: a newcomer of these prefixes in its place makes the numbers of the first prefix that differs less unequal. */
  oldestOfFullest(newcomer: readonly string[]): { victim: Connection | undefined; isFairer: boolean } {
    const [prefix, ...narrower] = newcomer
    let fullest: [prefix: string, part: Network<Connection>] | undefined
    for (const each of this.#parts) if (each[1].size > (fullest?.[1].size ?? 0)) fullest = each
    if (!fullest) return { victim: this.#connections.values().next().value, isFairer: false }
    const [found, part] = fullest
    if (found === prefix) return part.oldestOfFullest(narrower)
    const own = prefix === undefined ? undefined : this.#parts.get(prefix)
    const isFairer = prefix !== undefined && part.size >= (own?.size ?? 0) + 2
    return { victim: part.oldestOfFullest([]).victim, isFairer }
  }

  get size(): number {
    return this.#connections.size
  }
}
