/** Protocol versions this code speaks, newest first, and the names by which a WebSocket chooses the form of its frames. */
export const PROTOCOL_VERSIONS: readonly number[] = [1]
export const SUBPROTOCOLS = { 'sealpost.v1': 'binary', 'sealpost.v1.json': 'json' } as const
export type Subprotocol = keyof typeof SUBPROTOCOLS
export type Form = (typeof SUBPROTOCOLS)[Subprotocol]

/** The first subprotocol of ours among those a client offers, in its order of preference. */
export function chooseSubprotocol(offered: readonly string[]): Subprotocol | undefined {
  return offered.find((name): name is Subprotocol => Object.hasOwn(SUBPROTOCOLS, name))
}
