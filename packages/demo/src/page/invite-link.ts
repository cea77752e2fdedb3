/**
 * An invite link is the page's address with the invite as its fragment, which browsers don't send: no server and no log
 * on the way sees it.
 */

/** Takes the invite out of the address, so that neither the bar nor the history nor a shared link has it. */
export function takeInvite(): string | null {
  const text = decodeURIComponent(location.hash.slice(1)).trim()
  if (location.hash) history.replaceState(null, '', location.pathname)
  return text || null
}

/** Where to open an invite for another broker, or for another name of this one; null when it is for this very page. */
export function otherHome(invite: { readonly url: string }, text: string): string | null {
  const { protocol, host } = new URL(invite.url)
  const origin = `${protocol === 'wss:' ? 'https:' : 'http:'}//${host}`
  return origin === location.origin ? null : `${origin}${location.pathname}#${text}`
}
