/** What is needed of a WebSocket: the standard's own surface, so that browsers, Node, Bun and fakes all fit. */
export interface WebSocketLike {
  binaryType: string
  readonly protocol: string
  /** Copies the bytes before it returns, as the standard has it. */
  send(wire: Uint8Array | string): void
  close(code?: number, reason?: string): void
  onopen: ((event: never) => void) | null
  onmessage: ((event: { data: unknown }) => void) | null
  onclose: ((event: { code: number }) => void) | null
  onerror: ((event: never) => void) | null
}

export type WebSocketConstructor = new (url: string, protocols: string[]) => WebSocketLike

export function platformWebSocket(): WebSocketConstructor {
  return WebSocket as unknown as WebSocketConstructor
}

/** Where a broker listens, unless the address names a path itself. */
const PATH = '/v1/ws'

/**
 * The address to dial. Anything that would be logged on the way (a query, a fragment) is left out; credentials are
 * refused by `normalizeAuthority`.
 */
export function socketUrl(address: string): string {
  const url = new URL(address)
  const scheme = url.protocol === 'https:' || url.protocol === 'wss:' ? 'wss:' : 'ws:'
  return `${scheme}//${url.host}${url.pathname === '/' ? PATH : url.pathname}`
}
