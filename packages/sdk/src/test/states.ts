/** Provides tests with a space and its members, whose states are open at the test's broker. */
import { changeGroup, createGroup, type Identity, ready } from '@sealpost/identity'
import type { StateEvent } from '../state/entry-verifier.ts'
import { openState, setSpace } from '../state/index.ts'
import type { SpaceTerms, State } from '../state/state.ts'
import type { MemoryStore } from '../stores/memory-store.ts'
import { SpaceBroker } from './space-broker.ts'

export interface Member {
  readonly identity: Identity
  readonly state: State
  readonly told: StateEvent[]
}

export class Space {
  readonly broker = new SpaceBroker()
  readonly owner: Identity

  private constructor(owner: Identity) {
    this.owner = this.broker.join(owner)
  }

  /** Creates a space for the mesh, or for a group with this many additional members. */
  static async make(terms: SpaceTerms = {}, { inGroup = 0 } = {}): Promise<Space> {
    await ready()
    const space = new Space(new SpaceBroker().join())
    const others = Array.from({ length: inGroup }, () => space.broker.join())
    if (inGroup > 0) space.nameMembers(others)
    await setSpace(space.broker.placeOf(space.owner), terms)
    return space
  }

  /** Changes the group to its owner and these members. */
  nameMembers(others: readonly Identity[]): void {
    const members = [this.owner, ...others].map(({ signing }) => signing.publicKey)
    const group = this.broker.group
    const made = group
      ? changeGroup(this.owner.signing, group, { members })
      : createGroup(this.owner.signing, { meshId: this.broker.meshId, name: 'crew', members })
    this.broker.group = made
  }

  async open(identity = this.broker.join(), store?: MemoryStore): Promise<Member> {
    const told: StateEvent[] = []
    const onEvent = (event: StateEvent) => void told.push(event)
    const state = await openState({ ...this.broker.placeOf(identity), onEvent, ...(store && { store }) })
    return { identity, state, told }
  }
}

export async function all<T>(these: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = []
  for await (const one of these) found.push(one)
  return found
}

export async function take<T>(these: AsyncGenerator<T>, count: number): Promise<T[]> {
  const found: T[] = []
  for await (const one of these) if (found.push(one) === count) break
  return found
}
