/** Opens the sessions of a member in the folder of a profile, for tests. */
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { connect } from '@sealpost/sdk'
import { type MemberSession, openSession, type SessionOptions } from '@sealpost/sdk/sessions'
import type { PeerKey } from '@sealpost/std'
import { until } from './process.ts'
import { SessionProcess } from './session-process.ts'
import { type Place, temporaryFolder, type World } from './world.ts'

/** The profile of a member, in a folder of its own. */
export class SessionProfile implements AsyncDisposable {
  readonly folder: string
  readonly place: Place
  readonly #opened: MemberSession[] = []
  readonly started: SessionProcess[] = []

  private constructor(folder: string, place: Place) {
    this.folder = folder
    this.place = place
  }

  /** `place`: that of another profile of the member. */
  static async in(world: World, place?: Place): Promise<SessionProfile> {
    const profile = new SessionProfile(await temporaryFolder(), place ?? (await world.enrol()))
    const { identity, brokerKey, meshId } = profile.place
    const enrolment = { meshId, authority: world.broker.authority, brokerKey }
    await writeKeyFile(profile.#keyFile, { kind: 'peer', identity, formerBoxKeys: [], enrolment })
    return profile
  }

  async open(options: Partial<SessionOptions> = {}): Promise<MemberSession> {
    const { identity, ...place } = this.place
    const { folder } = this
    const session = await openSession({ ...place, folder, member: { identity }, baseLabel: 'laptop', ...options })
    this.#opened.push(session)
    return session
  }

  start(...words: string[]): SessionProcess {
    return this.#run('session-process.ts', words)
  }

  /** Starts a host with a clock of its own. Sessions that start later are not the host. */
  async startHost(): Promise<SessionProcess> {
    const host = this.#run('host-process.ts', [])
    await until('the host has begun', () => host.told('hosts').length > 0)
    return host
  }

  #run(program: string, words: readonly string[]): SessionProcess {
    const started = new SessionProcess(program, this.#keyFile, this.folder, ...words)
    this.started.push(started)
    return started
  }

  async opened(...words: string[]): Promise<SessionProcess> {
    const started = this.start(...words)
    await until('the session is open', () => started.told('opened').length > 0)
    return started
  }

  /** Returns the events of one kind of all processes. */
  told(kind: string): string[] {
    return this.started.flatMap((started) => started.told(kind))
  }

  get key(): PeerKey {
    return this.place.identity.signing.publicKey
  }

  get #keyFile(): string {
    return join(this.folder, 'key.json')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.started.map((started) => started.kill()))
    await Promise.all(this.#opened.map((session) => session.close()))
    await rm(this.folder, { recursive: true })
  }
}

/** A mesh with a profile and another peer. */
export async function meeting(host: World) {
  const world = await host.inNewMesh()
  const profile = await SessionProfile.in(world)
  const sender = world.closing(await connect(await world.enrol()))
  const isQueueEmpty = async () => (await world.count('message_queue')) === 0
  const close = async () => {
    await profile[Symbol.asyncDispose]()
    await world[Symbol.asyncDispose]()
  }
  return { world, profile, sender, isQueueEmpty, member: profile.key, [Symbol.asyncDispose]: close }
}

export const codeOf = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => null,
    (error: { code?: unknown }) => error.code,
  )
