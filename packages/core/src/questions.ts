/** What a session asks for beside mail, and who is asking. */
import type { ClientFrame } from '@sealpost/protocol'
import type { Asker } from './effects.ts'
import type { LiveSession } from './session.ts'

/** Each is answered by a statement or a frame of its own, or told to everybody who watches. */
const QUESTIONS: ReadonlySet<ClientFrame['type']> = new Set([
  ...(['lookup', 'lookupHistory', 'members', 'revoke', 'consent', 'bind', 'groups', 'setGroup'] as const),
  ...(['devices', 'removeDevice', 'succeed', 'status', 'watch', 'ping', 'setPool', 'pools', 'joinPool'] as const),
])

export const isQuestion = ({ type }: ClientFrame): boolean => QUESTIONS.has(type)

export const askerOf = ({ mesh: { meshId }, peer: { peer, peerKey, person } }: LiveSession): Asker => ({
  meshId,
  peer,
  peerKey,
  person,
})
