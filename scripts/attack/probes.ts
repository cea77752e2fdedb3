/** What an honest peer tries once a second while the others write to each other. Each says whether it worked. */
import { WireClient } from '@sealpost/broker/testing-wire'
import type { Probe, Target } from './attack.ts'
import type { Member } from './stage.ts'

export type Prober = () => Promise<boolean>
type Place = Target & Member

/** A new connection that proves its key. */
async function joins(place: Place): Promise<Prober> {
  return async () => {
    const client = await WireClient.enter(place).catch(() => null) // refused, or closed before its welcome
    client?.destroy()
    return client !== null
  }
}

export const probers: Record<Probe, (place: Place) => Promise<Prober>> = {
  join: joins,
  file: joins,
  replay: joins,
}
