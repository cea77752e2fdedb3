/**
 * Which names a request on the private port may carry. A web page can make its own name resolve to this machine (DNS rebinding)
 * and then read what loopback alone protects; it can't do so with an address, nor with a name of loopback. A hostile network can answer
 * every other name: `.local` by mDNS, a name without a dot by the search domain of DHCP.
 */
const LOOPBACK_NAME = /^([a-z0-9_-]+\.)*localhost$/

/** The refusal of a request for another name than those of loopback and `names`; null for others. */
export function hostRefusal(request: Request, names: readonly string[]): Response | null {
  const host = hostOf(request)
  if (host !== null && (isAddress(host) || LOOPBACK_NAME.test(host) || names.includes(host))) return null
  return Response.json({ code: 'wrong_authority' }, { status: 421 })
}

/** Without its port; null for none. */
function hostOf(request: Request): string | null {
  const url = `http://${request.headers.get('host') ?? ''}`
  return URL.canParse(url) ? new URL(url).hostname.toLowerCase() : null
}

const isAddress = (host: string): boolean => host.startsWith('[') || /^\d+\.\d+\.\d+\.\d+$/.test(host)
