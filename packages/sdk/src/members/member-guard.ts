/** Connects groups and pools of a peer with the proofs of membership, without importing them. */
import type { PeerKey } from '@sealpost/std'
import { SealpostError } from '../errors.ts'

/** Decides who may receive keys. In a mesh without a root, everybody may. @internal */
export interface MemberGuard {
  /** Returns those that are not proven. Calls resolve in their order. */
  unprovenAmong(peers: readonly PeerKey[]): Promise<readonly PeerKey[]>
  /** Returns whether all are known to be proven, so that no request is needed and no earlier call waits for one. */
  areKnown(peers: readonly PeerKey[]): boolean
}

/** The ports of a peer (`PeerPorts`). Declared here, because the ports import what imports this file. */
type Ports = object

const guards = new WeakMap<Ports, MemberGuard>()

/** @internal */
export function setGuard(ports: Ports, guard: MemberGuard): void {
  guards.set(ports, guard)
}

/**
 * Returns those among the peers that must receive no key. Returns no promise if no request is needed, so that messages
 * keep the order of their calls. @internal
 */
export function unprovenAmong(
  ports: Ports,
  peers: readonly PeerKey[],
): ReadonlySet<PeerKey> | Promise<ReadonlySet<PeerKey>> {
  const guard = guards.get(ports)
  if (!guard || guard.areKnown(peers)) return NOBODY
  return guard.unprovenAmong(peers).then((unproven) => new Set(unproven))
}

const NOBODY: ReadonlySet<PeerKey> = new Set()

/** The part of the observer of a group message (`SendObserver`) that ends barred members. @internal */
export interface BarringObserver {
  readonly expect: (members: readonly PeerKey[]) => void
  readonly ended: (outcome: { peer: PeerKey; receipt: null; error: SealpostError }) => void
}

/** Ends the barred members as soon as they are expected, because no envelope is sealed for them. @internal */
export function withoutBarred<Observer extends BarringObserver>(
  observer: Observer,
  barred: ReadonlySet<PeerKey>,
): Observer {
  const ended = new Set<PeerKey>()
  const expect = (members: readonly PeerKey[]) => {
    observer.expect(members)
    for (const peer of members) {
      if (!barred.has(peer) || ended.has(peer)) continue
      ended.add(peer)
      observer.ended({ peer, receipt: null, error: memberUnproven() })
    }
  }
  return { ...observer, expect }
}

/** @throws SealpostError `member_unproven` @internal */
export async function checkProven(ports: Ports, peers: readonly PeerKey[]): Promise<void> {
  if ((await unprovenAmong(ports, peers)).size > 0) throw memberUnproven()
}

/** @internal */
export const memberUnproven = (): SealpostError =>
  new SealpostError(
    'member_unproven',
    'The broker lists this key as a member, but no certificate leads from the root of the mesh to it. If it joined with an invite of several uses from an earlier version, an admin has to endorse it.',
  )
