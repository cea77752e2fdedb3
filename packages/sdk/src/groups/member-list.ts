/** What a group and a pool are alike for an application: a named set of peers, which its owner changes by statements. */
import type { PeerKey } from '@sealpost/std'

export interface MemberListView {
  readonly name: string
  readonly epoch: number
  readonly owner: PeerKey
  readonly members: readonly PeerKey[]
}

/** What of it becomes another. */
export type MemberListEdit = (now: MemberListView) => { name?: string; members?: readonly PeerKey[] }

export interface MemberListPorts<Facts extends MemberListView> {
  readonly self: PeerKey
  readonly now: () => Facts
  readonly change: (change: MemberListEdit) => Promise<void>
}

/** What it tells is what is known now. */
export abstract class MemberList<Facts extends MemberListView> {
  /** @internal */
  protected abstract readonly ports: MemberListPorts<Facts>

  protected get now(): Facts {
    return this.ports.now()
  }

  get name(): string {
    return this.now.name
  }
  get epoch(): number {
    return this.now.epoch
  }
  get owner(): PeerKey {
    return this.now.owner
  }
  get members(): readonly PeerKey[] {
    return this.now.members
  }
  get isOwn(): boolean {
    return this.owner === this.ports.self
  }

  /**
   * They get what is sent from then on; what was sent before is not sealed for them.
   * @throws SealpostError `not_owner`, `group_malformed` or `pool_malformed`, `unknown_group` when it was deleted
   */
  add(...peers: PeerKey[]): Promise<void> {
    return this.ports.change(({ members }) => ({ members: [...members, ...peers] }))
  }

  /**
   * What is sent from then on they can't open. Of a pool they are given nothing more, and what they hold goes to others.
   * @throws SealpostError as `add` does
   */
  remove(...peers: PeerKey[]): Promise<void> {
    return this.ports.change(({ members }) => ({ members: members.filter((member) => !peers.includes(member)) }))
  }

  /** @throws SealpostError as `add` does */
  rename(name: string): Promise<void> {
    return this.ports.change(() => ({ name }))
  }
}
