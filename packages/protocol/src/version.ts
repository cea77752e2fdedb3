/** The supported protocol versions, newest first, and the WebSocket subprotocols with their forms. */
export const PROTOCOL_VERSIONS: readonly number[] = [1]
export const SUBPROTOCOLS = { 'sealpost.v1': 'binary', 'sealpost.v1.json': 'json' } as const
export type Subprotocol = keyof typeof SUBPROTOCOLS
export type Form = (typeof SUBPROTOCOLS)[Subprotocol]

export function chooseSubprotocol(offered: readonly string[]): Subprotocol | undefined {
  return offered.find((name): name is Subprotocol => Object.hasOwn(SUBPROTOCOLS, name))
}
