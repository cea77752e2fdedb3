/**
 * Tracks connections without a proven key by the prefixes of their client addresses, and selects the one to close when
 * there are too many.
 *
 * An attacker with many addresses usually has them in few networks: a /48 or /56 of IPv6, or a /24 of IPv4. A new
 * client replaces the oldest connection of the fullest network if its own network has fewer connections. So an attacker
 * displaces itself, and clients that reconnect all at the same time do not displace each other. A connection that has
 * been silent for too long is replaced by any client.
 */

import { BlockList, isIP } from 'node:net'
import type { Millis } from '@sealpost/std'

/** The maximum time from `hello` to `auth`: a few round trips, and time for a phone to wake up. */
export const SILENT_MS_MAX: Millis = 2_000

/** Returns the prefixes of an address, widest network first. IPv6 addresses end at /64. */
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
  /** Whether no frame has arrived. */
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

  /** Call at the first frame, after which the client waits for the broker. */
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

  /** Returns the connection to close for a client at this address, if any. */
  victimFor(clientAddress: string, nowMs: Millis): Connection | undefined {
    const { victim, isFairer } = this.#all.oldestOfFullest(prefixesOf(clientAddress))
    const entry = victim === undefined ? undefined : this.#entries.get(victim)
    const isOverdue = entry?.isSilent === true && nowMs - entry.sinceMs >= SILENT_MS_MAX
    return isFairer || isOverdue ? victim : undefined
  }
}

/** The connections under a prefix, oldest first, and its narrower networks. */
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

  /**
   * Returns the oldest connection of the fullest network. `isFairer`: whether replacing it brings the networks' counts
   * closer.
   */
  oldestOfFullest(newPrefixes: readonly string[]): { victim: Connection | undefined; isFairer: boolean } {
    const [prefix, ...narrower] = newPrefixes
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

/** Finds client addresses behind trusted proxies. */
export interface Proxies {
  /** The trusted addresses and networks (`10.0.0.0/8`). */
  readonly trusted: readonly string[]
  /** The header that the proxies write. A client could forge the other one, so it is ignored. */
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
   * Returns the nearest address that is not a trusted proxy's; for IPv6, its /64. Proxies append addresses, so read
   * from the end; entries before may be forged.
   */
  clientOf(headers: Headers, connection: string): string {
    let client = plain(connection) ?? ''
    if (this.proxies.trusted.length === 0) return prefixOf(client)
    const said = this.saidBy(headers)
    while (this.isTrusted(client) && said.length > 0) {
      const before = plain(said.pop()!)
      if (before === undefined) break // not an address, so the proxy counts as the client
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

/** Returns whether the string may be in `TRUSTED_PROXIES`. */
export function isNetwork(text: string): boolean {
  const [address = '', bits, ...more] = text.split('/')
  const family = isIP(address)
  if (family === 0 || more.length > 0) return false
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (family === 6 ? 128 : 32))
}

/** Returns the address in `for=192.0.2.43;proto=https` (RFC 7239). */
const forOf = (element: string): string =>
  /(?:^|;)\s*for\s*=\s*(?:"([^"]*)"|([^;\s]*))/i
    .exec(element)
    ?.slice(1)
    .find((found) => found !== undefined) ?? ''

/** Strips port, brackets and IPv4-mapped prefix. Returns undefined for anything but an address. */
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
