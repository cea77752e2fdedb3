/**
 * The host names that a request on the private port may have. A web page can make its own name resolve to this machine
 * (DNS rebinding) and then read what only loopback protects; it can't do so with an address, nor with a loopback name.
 * A hostile network can answer for every other name: `.local` by mDNS, a name without a dot by the search domain of
 * DHCP.
 */
const LOOPBACK_NAME = /^([a-z0-9_-]+\.)*localhost$/

/** Returns the refusal of a request whose host is neither loopback nor in `names`; otherwise null. */
export function hostRefusal(request: Request, names: readonly string[]): Response | null {
  const host = hostOf(request)
  if (host !== null && (isAddress(host) || LOOPBACK_NAME.test(host) || names.includes(host))) return null
  return Response.json({ code: 'wrong_authority' }, { status: 421 })
}

function hostOf(request: Request): string | null {
  const url = `http://${request.headers.get('host') ?? ''}`
  return URL.canParse(url) ? new URL(url).hostname.toLowerCase() : null
}

const isAddress = (host: string): boolean => host.startsWith('[') || /^\d+\.\d+\.\d+\.\d+$/.test(host)
