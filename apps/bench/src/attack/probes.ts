/** What an honest peer tries once a second while the others write to each other. Each says whether it worked. */
import { WireClient } from '@sealpost/broker/testing-wire'
import type { Probe, Target } from './attack.ts'
import { HttpMember } from './http-member.ts'
import { HISTORY, type Member } from './stage.ts'

export type Prober = () => Promise<boolean>
const CHUNK_BYTES = 64 * 1024

type Place = Target & Member

/** A new connection that proves its key. */
async function joins(place: Place): Promise<Prober> {
  return async () => {
    const client = await WireClient.enter(place).catch(() => null) // refused, or closed before its welcome
    client?.destroy()
    return client !== null
  }
}

/** A chunk of an attachment. */
async function uploads(place: Place): Promise<Prober> {
  const member = await HttpMember.enter(place)
  const content = crypto.getRandomValues(new Uint8Array(CHUNK_BYTES))
  const id = await member.createAttachment(CHUNK_BYTES, CHUNK_BYTES)
  return () => member.putChunk(id, 0, content).catch(() => false)
}

/** The last entries of the mesh's state. */
async function replays(place: Place): Promise<Prober> {
  const member = await HttpMember.enter(place)
  return () => member.replay(HISTORY.events - 10).catch(() => false)
}

export const probers: Record<Probe, (place: Place) => Promise<Prober>> = {
  join: joins,
  file: uploads,
  replay: replays,
}
