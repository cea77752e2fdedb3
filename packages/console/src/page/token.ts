/** The token of this tab: it comes in the fragment, which no server sees, leaves the address bar at once, and ends with the tab. */

const NAME = 'sealpost admin token'
const IN_FRAGMENT = /^#(spa_[0-9a-f]{16}_[A-Za-z0-9_-]{43})$/

export function takeToken(): string | null {
  const fresh = IN_FRAGMENT.exec(location.hash)?.[1]
  if (!fresh) return sessionStorage.getItem(NAME)
  history.replaceState(null, '', '#/')
  keepToken(fresh)
  return fresh
}

export const keepToken = (token: string): void => sessionStorage.setItem(NAME, token)
export const forgetToken = (): void => sessionStorage.removeItem(NAME)
