/** Who a request comes from, by its address: that of the connection, or what a proxy that is trusted says of it. */
import { BlockList, isIP } from 'node:net'

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
