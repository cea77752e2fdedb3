/** Runs peers as processes that tests can kill, on a key file and a file store. */
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { generateIdentity } from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import type { PeerKey } from '@sealpost/std'
import { type Place, temporaryFolder, type World } from './world.ts'

const LIFE = join(import.meta.dirname, '../../../../packages/sdk/src/test/peer-process.ts')

/** A line of output: the kind of an event, and its text or number. */
type Told = Readonly<Record<string, string | number>>

/** A peer in a process of its own (`peer-process.ts`). */
export class Life implements AsyncDisposable {
  readonly #child: Bun.Subprocess<'ignore', 'pipe', 'inherit'>
  #text = ''
  readonly #read: Promise<void>

  constructor(...words: string[]) {
    this.#child = Bun.spawn([process.execPath, LIFE, ...words], { stdin: 'ignore', stdout: 'pipe', stderr: 'inherit' })
    this.#read = this.#collect()
  }

  /** Returns the events of one kind so far. */
  told(kind: string): string[] {
    const lines = this.#text.slice(0, this.#text.lastIndexOf('\n') + 1).split('\n')
    return lines.flatMap((line) => {
      const told: Told = line === '' ? {} : JSON.parse(line)
      return kind in told ? [String(told[kind])] : []
    })
  }

  countOf(event: string): number {
    return this.told('event').filter((type) => type === event).length
  }

  get hasEnded(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null
  }

  async kill(): Promise<void> {
    this.#child.kill('SIGKILL')
    await this.#child.exited
    await this.#read
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill()
  }

  async #collect(): Promise<void> {
    const decoder = new TextDecoder()
    for await (const bytes of this.#child.stdout) this.#text += decoder.decode(bytes, { stream: true })
  }
}

/** A peer that runs as several processes on one key file and store. */
export interface WrittenPeer extends AsyncDisposable {
  readonly key: PeerKey
  readonly place: Place
  readonly files: [string, string]
}

export async function writtenPeer(world: World): Promise<WrittenPeer> {
  const folder = await temporaryFolder()
  const identity = generateIdentity()
  const place = await world.enrol(world.meshId, identity)
  const { meshId, broker } = world
  const enrolment = { meshId, authority: broker.authority, brokerKey: broker.key }
  const keyFile = join(folder, 'peer.json')
  await writeKeyFile(keyFile, { kind: 'peer', identity, formerBoxKeys: [], enrolment })
  return {
    place,
    key: identity.signing.publicKey,
    files: [keyFile, join(folder, 'peer.store')],
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true }),
  }
}
