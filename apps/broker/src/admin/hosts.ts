/**
 * Whose name a request on the private port may carry. A web page can make its own name resolve to this machine (DNS rebinding)
 * and then read what loopback alone protects; it can't do so with an address, nor with a name that no public DNS answers.
 */
const PRIVATE_NAME = /^[a-z0-9_-]+$|\.(localhost|local|internal|svc|lan)$/

/** The refusal of a request for a public name that is not among `names`; null for others. */
export function hostRefusal(request: Request, names: readonly string[]): Response | null {
  const host = hostOf(request)
  if (host !== null && (isAddress(host) || PRIVATE_NAME.test(host) || names.includes(host))) return null
  return Response.json({ code: 'wrong_authority' }, { status: 421 })
}

/** Without its port; null for none. */
function hostOf(request: Request): string | null {
  const url = `http://${request.headers.get('host') ?? ''}`
  return URL.canParse(url) ? new URL(url).hostname.toLowerCase() : null
}

const isAddress = (host: string): boolean => host.startsWith('[') || /^\d+\.\d+\.\d+\.\d+$/.test(host)
