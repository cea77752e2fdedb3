/** Runs the peers in child programs (`peers.ts`), and tracks their progress. */

import { join } from 'node:path'
import { generateMesh, type MeshMembers, type SecretKeys } from '@sealpost/harness/members/mesh'
import { Child } from '@sealpost/harness/programs/child'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { type MeshId, OperatingError, type PeerKey } from '@sealpost/std'
import type { Kind } from '../judgement/ledger.ts'

export interface Role {
  readonly no: number
  readonly meshId: MeshId
  readonly secret: SecretKeys
}

export interface PeerSetup {
  readonly ledgerFile: string
  readonly url: string
  readonly brokerKey: PeerKey
  readonly roles: readonly Role[]
  /** The keys by peer number. */
  readonly keys: readonly PeerKey[]
  /** The peers to which each may write. */
  readonly correspondents: readonly (readonly number[])[]
  readonly bodyBytes: number
  readonly seed: number
}

export type PeerCommand =
  | ({ readonly do: 'prepare' } & PeerSetup)
  /** Answered after each peer's first session. */
  | { readonly do: 'join'; readonly peers: readonly number[] }
  | { readonly do: 'leave'; readonly peers: readonly number[] }
  /** Sets the messages per second of all joined peers; 0 stops the traffic. */
  | { readonly do: 'pace'; readonly perSecond: number }
  /** Answered once the outbox has all messages. */
  | { readonly do: 'burst'; readonly from: number; readonly to: number; readonly count: number; readonly kind: Kind }
  | { readonly do: 'dawdle'; readonly peers: readonly number[]; readonly forMs: number }
  | { readonly do: 'flush' }

export interface PeerProgress {
  readonly sent: number
  readonly acked: number
  /** The number of distinct messages delivered. */
  readonly got: number
  /** The number of unanswered sends. */
  readonly pending: number
  readonly online: number
  readonly joined: number
}

export type PeerReply =
  | ({ readonly did: 'progress' } & PeerProgress)
  | { readonly did: Exclude<PeerCommand['do'], 'pace' | 'dawdle'> }
  | { readonly did: 'fail'; readonly reason: string }

interface Cast {
  readonly peers: number
  /** Whether the peers write, to each other only. */
  readonly isWriting: boolean
  /** The number of peers that are absent until the end. */
  readonly sleepers: number
  /** Whether the peers need no proxy, because there are too many. */
  readonly isDirect?: boolean
}

export interface PopulationMember {
  readonly no: number
  readonly program: number
  readonly meshNo: number
  readonly isSleeper: boolean
  readonly isWriting: boolean
  readonly key: PeerKey
}

export interface PopulationSetting {
  readonly casts: readonly Cast[]
  readonly meshes: number
}

export interface Invited {
  readonly meshes: readonly MeshMembers[]
  readonly members: readonly PopulationMember[]
}

const FILE = join(import.meta.dirname, 'peers.ts')
const NOTHING: PeerProgress = { sent: 0, acked: 0, got: 0, pending: 0, online: 0, joined: 0 }

/** Creates the members, assigned to meshes in turn, so that every program has peers in each. */
export async function invite({ casts, meshes: count }: PopulationSetting): Promise<Invited> {
  const members = casts.flatMap((cast, program) =>
    Array.from({ length: cast.peers }, (_, i) => ({
      program,
      isSleeper: i >= cast.peers - cast.sleepers,
      isWriting: cast.isWriting,
    })),
  )
  const sizes = Array.from({ length: count }, (_, meshNo) => members.filter((_, no) => no % count === meshNo).length)
  const meshes = await Promise.all(sizes.map((size) => generateMesh(size)))
  const numbered = members.map((member, no): PopulationMember => {
    const meshNo = no % count
    return { ...member, no, meshNo, key: meshes[meshNo]!.peerKeys[Math.floor(no / count)]! }
  })
  return { meshes, members: numbered }
}

interface ProgramOptions {
  /** The address that each program connects to. */
  readonly urls: readonly string[]
  readonly brokerKey: PeerKey
  readonly ledgerFiles: readonly string[]
  readonly bodyBytes: number
  readonly seed: number
}

export class Population {
  readonly members: readonly PopulationMember[]
  readonly #programs: readonly Child<PeerCommand, PeerReply>[]
  readonly #latest: PeerProgress[]
  readonly #failed = Promise.withResolvers<never>()

  private constructor(members: readonly PopulationMember[], programs: number) {
    this.members = members
    this.#programs = Array.from(
      { length: programs },
      (_, i) => new Child<PeerCommand, PeerReply>(`Program ${i} of peers`, FILE),
    )
    this.#latest = this.#programs.map(() => NOTHING)
    this.#failed.promise.catch(() => undefined) // prevents an unhandled rejection
    for (const [i, program] of this.#programs.entries())
      program.onReply((answer) => {
        if (answer.did === 'progress') this.#latest[i] = answer
        if (answer.did === 'fail') this.#failed.reject(new OperatingError('peers_failed', answer.reason))
      })
    for (const { died } of this.#programs) died.catch((error) => this.#failed.reject(error))
  }

  static async open(invited: Invited, around: ProgramOptions, teardown: Teardown): Promise<Population> {
    const { members, meshes } = invited
    const keys = members.map(({ key }) => key)
    const population = new Population(members, around.urls.length)
    teardown.add({ end: () => population.#stop(), kill: () => population.#kill() })
    const correspondents = members.map(({ no, meshNo, isWriting }) => {
      const others = members.filter((other) => other.no !== no && other.meshNo === meshNo && other.isWriting)
      return isWriting ? others.map((other) => other.no) : []
    })
    const { brokerKey, bodyBytes, seed } = around
    await population.#all('prepare', (program) => ({
      do: 'prepare',
      ledgerFile: around.ledgerFiles[program]!,
      url: around.urls[program]!,
      roles: members
        .filter((member) => member.program === program)
        .map(({ no, meshNo }) => {
          const { meshId, secrets } = meshes[meshNo]!
          return { no, meshId, secret: secrets[Math.floor(no / meshes.length)]! }
        }),
      ...{ brokerKey, keys, correspondents, bodyBytes, seed: seed + program },
    }))
    return population
  }

  get programCount(): number {
    return this.#programs.length
  }

  get progress(): PeerProgress {
    const sum = { ...NOTHING } as { -readonly [K in keyof PeerProgress]: number }
    for (const one of this.#latest)
      for (const name of Object.keys(sum) as (keyof PeerProgress)[]) sum[name] += one[name]
    return sum
  }

  progressOf(program: number): PeerProgress {
    return this.#latest[program]!
  }

  pid(program: number): number {
    return this.#programs[program]!.pid
  }

  peersOf(programs: readonly number[]): number[] {
    return this.members.filter(({ program }) => programs.includes(program)).map(({ no }) => no)
  }

  /** Makes the members join. Resolves after their first sessions. */
  join(members: readonly PopulationMember[]): Promise<unknown> {
    return this.#each(members, 'join')
  }

  leave(members: readonly PopulationMember[]): Promise<unknown> {
    return this.#each(members, 'leave')
  }

  /** Sets the messages per second of all writers. */
  pace(perSecond: number): void {
    const writing = new Set(this.members.filter(({ isWriting }) => isWriting).map(({ program }) => program))
    for (const program of writing)
      this.#programs[program]!.send({ do: 'pace', perSecond: perSecond / Math.max(1, writing.size) })
  }

  burst(order: Omit<Extract<PeerCommand, { do: 'burst' }>, 'do'>): Promise<unknown> {
    return this.#one(this.members[order.from]!.program, { do: 'burst', ...order })
  }

  dawdle(members: readonly PopulationMember[], forMs: number): void {
    for (const [program, peers] of byProgram(members)) this.#programs[program]!.send({ do: 'dawdle', peers, forMs })
  }

  flush(): Promise<unknown> {
    return this.#all('flush', () => ({ do: 'flush' }))
  }

  /** Rejects when a program fails. */
  get failed(): Promise<never> {
    return this.#failed.promise
  }

  #each(members: readonly PopulationMember[], what: 'join' | 'leave'): Promise<unknown> {
    return Promise.all([...byProgram(members)].map(([program, peers]) => this.#one(program, { do: what, peers })))
  }

  #all(did: PeerCommand['do'], orderOf: (program: number) => PeerCommand): Promise<unknown> {
    return Promise.all(this.#programs.map((_, program) => this.#one(program, orderOf(program), did)))
  }

  #one(program: number, order: PeerCommand, did: string = order.do): Promise<unknown> {
    const child = this.#programs[program]!
    const answered = child.nextReply((answer): answer is PeerReply => answer.did === did)
    child.send(order)
    return Promise.race([answered, this.#failed.promise])
  }

  async #stop(): Promise<void> {
    await Promise.all(this.#programs.map((program) => program.stop()))
  }

  #kill(): void {
    for (const program of this.#programs) program.kill()
  }
}

function byProgram(members: readonly PopulationMember[]): Map<number, number[]> {
  const found = new Map<number, number[]>()
  for (const { program, no } of members) found.set(program, [...(found.get(program) ?? []), no])
  return found
}
