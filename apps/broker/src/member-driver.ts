/** The effects of what members ask about each other and of what is theirs: the part of the driver that asks the registrars. */
import type { Asker, SocketId, Sought, StandingCheck } from '@sealpost/core'
import type { FrameOf } from '@sealpost/protocol'
import type { DrainOptions } from '@sealpost/queue'
import type { MeshId, PeerNo } from '@sealpost/std'
import type { Cells } from './cells.ts'
import { CollectDriver } from './collect-driver.ts'
import type { GroupRegistrar } from './group-registrar.ts'
import type { Ownership } from './ownership.ts'
import type { PersonRegistrar } from './person-registrar.ts'
import type { PoolParts } from './pool-driver.ts'
import type { Registrar } from './registrar.ts'
import type { SpaceLookup } from './space-lookup.ts'

export interface MemberParts extends PoolParts {
  readonly cells: Cells
  readonly registrar: Registrar
  readonly ownership: Ownership
  readonly groups: GroupRegistrar
  readonly persons: PersonRegistrar
  readonly spaces: SpaceLookup
}

export abstract class MemberDriver extends CollectDriver {
  protected override readonly parts: MemberParts

  constructor(parts: MemberParts, drain: DrainOptions) {
    super(parts, drain)
    this.parts = parts
  }

  checkStandings(checks: readonly StandingCheck[]): void {
    this.ask('standing', this.parts.queue.standings(checks.map(({ session }) => session)), (standings) =>
      this.engine.standings.found(checks, standings),
    )
  }

  /** Before it is said that something is not there, it is asked whether its mesh is. */
  protected async seek(meshId: MeshId, { peers, groups, pools, spaces }: Sought) {
    const { queue, persons, groups: registrar, cells, spaces: lookup } = this.parts
    const found = await Promise.all([
      persons.findMembers(meshId, peers),
      registrar.find(meshId, groups),
      pools.length > 0 ? queue.findPools(meshId, pools) : [],
      Promise.all(spaces.map((space) => lookup.find(meshId, space))),
    ])
    const [{ members }, { size }, foundPools] = found
    const isAll = members.length >= peers.length && size >= groups.length && foundPools.length >= pools.length
    if (!isAll) await cells.assertHere(meshId)
    return found
  }

  lookup(socket: SocketId, meshId: MeshId, lookup: FrameOf<'lookup'>): void {
    const { queue, persons } = this.parts
    this.ask(
      'lookup',
      Promise.all([queue.findBindings(meshId, lookup.peers), persons.find(meshId, lookup.peers)]),
      ([bindings, found]) => this.engine.persons.found(socket, lookup, bindings, found),
    )
  }

  listMembers(socket: SocketId, meshId: MeshId, members: FrameOf<'members'>): void {
    this.ask('members', this.parts.registrar.list(meshId, members), (page) =>
      this.engine.owners.listed(socket, members, page),
    )
  }

  revoke(socket: SocketId, asker: { meshId: MeshId; peer: PeerNo }, revoke: FrameOf<'revoke'>): void {
    this.ask('revoke', this.parts.registrar.revoke(asker, revoke), (ended) =>
      this.engine.revoked(socket, revoke, ended),
    )
  }

  consent(socket: SocketId, asker: Asker, consent: FrameOf<'consent'>): void {
    this.ask('consent', this.parts.ownership.consent(asker, consent), (answer) => {
      if (answer) this.engine.owners.consented(socket, asker, consent, answer)
    })
  }

  bind(socket: SocketId, asker: Asker, bind: FrameOf<'bind'>): void {
    this.ask('bind', this.parts.ownership.bind(asker, bind), (outcome) => {
      if (outcome) this.engine.owners.bound(socket, asker, bind, outcome)
    })
  }

  lookupHistory(socket: SocketId, meshId: MeshId, lookup: FrameOf<'lookupHistory'>): void {
    this.ask('history', this.parts.ownership.history(meshId, lookup), (bindings) =>
      this.engine.owners.historyFound(socket, lookup, bindings),
    )
  }

  setGroup(socket: SocketId, asker: Asker, setGroup: FrameOf<'setGroup'>): void {
    this.ask('group', this.parts.groups.set(asker, setGroup), (answer) => {
      if (answer) this.engine.groups.wasSet(socket, asker, setGroup, answer)
    })
  }

  listGroups(socket: SocketId, meshId: MeshId, groups: FrameOf<'groups'>): void {
    this.ask('groups', this.parts.groups.list(meshId, groups), (page) =>
      this.engine.groups.listed(socket, groups, page),
    )
  }

  listDevices(socket: SocketId, meshId: MeshId, devices: FrameOf<'devices'>): void {
    this.ask('devices', this.parts.persons.find(meshId, devices.peers), (found) =>
      this.engine.persons.listed(socket, devices, found),
    )
  }

  removeDevice(socket: SocketId, asker: Asker, remove: FrameOf<'removeDevice'>): void {
    this.ask('device', this.parts.persons.remove(asker, remove), (answer) => {
      if (answer) this.engine.persons.removed(socket, asker, remove, answer)
    })
  }

  succeed(socket: SocketId, asker: Asker, succeed: FrameOf<'succeed'>): void {
    this.ask('succeed', this.parts.persons.succeed(asker, succeed), (answer) => {
      if (answer) this.engine.persons.succeeded(socket, asker, succeed, answer)
    })
  }
}
