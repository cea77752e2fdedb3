/**
 * One spelling for "where the client dialled": `host:port`, lower case, punycode, IPv6 in brackets, the port always
 * there. Both ends sign it, so both must spell it alike. The platform's URL parser does the work.
 */
import { OperatingError } from '@sealpost/std'

const PORTS = new Map([
  ['wss:', '443'],
  ['https:', '443'],
  ['ws:', '80'],
  ['http:', '80'],
])

/**
 * Takes a URL (`wss://host/path`) or a bare `host` or `host:port`, which is read with `bareScheme`.
 * @throws OperatingError `authority_malformed`
 */
export function normalizeAuthority(address: string, bareScheme: 'wss' | 'ws' = 'wss'): string {
  const url = parse(/^[a-z][a-z0-9+.-]*:\/\//i.test(address) ? address : `${bareScheme}://${address}`)
  const defaultPort = url && PORTS.get(url.protocol)
  // The text is not repeated: it may hold a password.
  if (!url || !defaultPort) throw malformed('It is no address of the form wss://host:port.')
  if (url.username || url.password) throw malformed('It names a user, which is never sent to a broker.')
  return `${url.hostname}:${url.port || defaultPort}`
}

/** The port of an address, also when it is the one that its scheme stands for. @throws OperatingError as `normalizeAuthority` */
export function portOf(address: string): number {
  const authority = normalizeAuthority(address)
  return Number(authority.slice(authority.lastIndexOf(':') + 1))
}

/** Whether a connection there leaves this machine unencrypted. @throws OperatingError as `normalizeAuthority` */
export function isExposed(address: string): boolean {
  const authority = normalizeAuthority(address)
  return /^(ws|http):/i.test(address) && !isLoopback(authority.slice(0, authority.lastIndexOf(':')))
}

/** Of a host name or an address, an IPv6 one with brackets or without. */
export function isLoopback(host: string): boolean {
  const name = host.toLowerCase().replace(/^\[(.*)\]$/, '$1')
  return name === '::1' || name === 'localhost' || name.endsWith('.localhost') || /^127(\.\d{1,3}){3}$/.test(name)
}

function parse(text: string): URL | null {
  return URL.canParse(text) ? new URL(text) : null
}

function malformed(reason: string): OperatingError {
  return new OperatingError('authority_malformed', `The broker's address can't be used. ${reason}`)
}
