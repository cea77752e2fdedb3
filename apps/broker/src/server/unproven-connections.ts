/**
 * Connections without a proven key, by the prefixes of their client addresses, and which of them makes room for a new one
 * when there are too many.
 *
 * An attacker with many addresses usually has them in few networks: a /48 or a /56 of IPv6, a /24 of IPv4. A client takes the
 * place of the oldest connection of the fullest network, if its own network has fewer: an attacker displaces itself, and
 * clients that all come back at once displace nobody who is about to be served. One that has been silent for too long
 * makes room for anybody.
 */

import { BlockList, isIP } from 'node:net'
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

/** Who a request comes from, by its address: that of the connection, or what a proxy that is trusted says of it. */
export interface Proxies {
  /** Addresses and networks (`10.0.0.0/8`) whose word counts. */
  readonly trusted: readonly string[]
  /** The one header they write. The other one could be the client's own. */
  readonly header: 'x-forwarded-for' | 'forwarded'
}

export class Addresses {
  private readonly proxies: Proxies
  private readonly trusted = new BlockList()

  constructor(proxies: Proxies) {
    this.proxies = proxies
    for (const network of proxies.trusted) {
      const [address, bits] = network.split('/') as [string, string?]
      const family = isIP(address) === 6 ? 'ipv6' : 'ipv4'
      if (bits === undefined) this.trusted.addAddress(address, family)
      else this.trusted.addSubnet(address, Number(bits), family)
    }
  }

  /**
   * The nearest address that is not a trusted proxy's; for IPv6 its /64, which usually belongs to one client.
   * Each proxy appends whom it heard, so the list is read from its end; what stands before a stranger is his invention.
   */
  clientOf(headers: Headers, connection: string): string {
    let client = plain(connection) ?? ''
    if (this.proxies.trusted.length === 0) return prefixOf(client)
    const said = this.saidBy(headers)
    while (this.isTrusted(client) && said.length > 0) {
      const before = plain(said.pop()!)
      if (before === undefined) break // a name, or none: the proxy itself answers for it
      client = before
    }
    return prefixOf(client)
  }

  private saidBy(headers: Headers): string[] {
    const { header } = this.proxies
    const parts = headers.get(header)?.split(',') ?? []
    return header === 'forwarded' ? parts.map(forOf) : parts
  }

  private isTrusted(address: string): boolean {
    return this.trusted.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4')
  }
}

/** What `TRUSTED_PROXIES` may hold. */
export function isNetwork(text: string): boolean {
  const [address = '', bits, ...more] = text.split('/')
  const family = isIP(address)
  if (family === 0 || more.length > 0) return false
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (family === 6 ? 128 : 32))
}

/** Of `for=192.0.2.43;proto=https` (RFC 7239). */
const forOf = (element: string): string =>
  /(?:^|;)\s*for\s*=\s*(?:"([^"]*)"|([^;\s]*))/i
    .exec(element)
    ?.slice(1)
    .find((found) => found !== undefined) ?? ''

/** Without port, brackets, and the IPv6 dress of an IPv4 address; undefined: none of the two. */
function plain(text: string): string | undefined {
  const trimmed = text.trim()
  const [, bracketed] = /^\[([^\]]+)\](?::\d+)?$/.exec(trimmed) ?? []
  const [, beforePort] = /^([\d.]+):\d+$/.exec(trimmed) ?? []
  const address = (bracketed ?? beforePort ?? trimmed).replace(/^::ffff:(?=\d+\.)/i, '')
  return isIP(address) === 0 ? undefined : address
}

function prefixOf(address: string): string {
  if (isIP(address) !== 6) return address
  const [before = [], after] = address.split('::').map((half) => half.split(':').filter((group) => group !== ''))
  const zeros = after === undefined ? 0 : 8 - before.length - after.length
  const groups = [...before, ...Array.from({ length: zeros }, () => '0'), ...(after ?? [])]
  return groups.slice(0, 4).map((group) => Number.parseInt(group, 16).toString(16)).join(':') // biome-ignore format: one thing
}
