/** Tests peers that are killed and resume on their file stores. */
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { generateIdentity } from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { decodeClientFrame } from '@sealpost/protocol'
import { type ConnectOptions, connect } from '@sealpost/sdk'
import type { PeerKey } from '@sealpost/std'
import { expect, test } from 'vitest'
import { until } from './process.ts'
import { temporaryFolder, World } from './world.ts'

const LIFE = join(import.meta.dirname, '../../../../packages/sdk/src/test/peer-process.ts')

const numbers = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => String(from + i))
/** More messages than a process can send before it is killed. */
const MANY = 20_000

/** A line of output: the kind of an event, and its text or number. */
type Told = Readonly<Record<string, string | number>>

class Life implements AsyncDisposable {
  private readonly child: Bun.Subprocess<'ignore', 'pipe', 'inherit'>
  private text = ''
  private readonly read: Promise<void>

  constructor(...words: string[]) {
    this.child = Bun.spawn([process.execPath, LIFE, ...words], { stdin: 'ignore', stdout: 'pipe', stderr: 'inherit' })
    this.read = this.collect()
  }

  /** Returns the events of one kind so far. */
  told(kind: string): string[] {
    const lines = this.text.slice(0, this.text.lastIndexOf('\n') + 1).split('\n')
    return lines.flatMap((line) => {
      const told: Told = line === '' ? {} : JSON.parse(line)
      return kind in told ? [String(told[kind])] : []
    })
  }

  countOf(event: string): number {
    return this.told('event').filter((type) => type === event).length
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.child.kill('SIGKILL')
    await this.child.exited
    await this.read
  }

  private async collect(): Promise<void> {
    const decoder = new TextDecoder()
    for await (const bytes of this.child.stdout) this.text += decoder.decode(bytes, { stream: true })
  }
}

/** A peer that runs as several processes on one key file and store. */
interface WrittenPeer extends AsyncDisposable {
  readonly key: PeerKey
  readonly files: [string, string]
}

async function writtenPeer(world: World): Promise<WrittenPeer> {
  const folder = await temporaryFolder()
  const identity = generateIdentity()
  await world.enrol(world.meshId, identity)
  const { meshId, broker } = world
  const enrolment = { meshId, authority: broker.authority, brokerKey: broker.key }
  const keyFile = join(folder, 'peer.json')
  await writeKeyFile(keyFile, { kind: 'peer', identity, formerBoxKeys: [], enrolment })
  return {
    key: identity.signing.publicKey,
    files: [keyFile, join(folder, 'peer.store')],
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true }),
  }
}

test('messages stored while the broker was down are sent once and in order, even though their sender is killed three times', async () => {
  await using world = await World.open()
  await using sender = await writtenPeer(world)
  const place = await world.enrol()
  const to = place.identity.signing.publicKey
  await world.broker.kill()

  const kept: string[] = []
  {
    await using life = new Life('post', ...sender.files, to, ...numbers(0, MANY))
    await until('a hundred are kept', () => life.told('kept').length >= 100)
    await life[Symbol.asyncDispose]() // kills the sender while it sends
    kept.push(...life.told('kept'))
  }
  expect(kept.length).toBeLessThan(MANY)
  {
    await using life = new Life('post', ...sender.files, to, ...numbers(MANY, MANY + 50))
    await until('the second life keeps more', () => life.told('kept').length === 50)
    kept.push(...life.told('kept'))
  }
  await world.restart()
  {
    await using life = new Life('post', ...sender.files, to)
    await until('the third life sends some', () => life.countOf('sent') > 0)
  }
  await using last = new Life('post', ...sender.files, to)

  const recipient = await connect(place)
  const texts: string[] = []
  recipient.onMessage((message) => void texts.push(message.text()))
  await until('all that was kept came', () => kept.every((text) => texts.includes(text)))
  await until('the queue is empty', async () => (await world.count('message_queue')) === 0)
  expect(texts.map(Number)).toEqual([...new Set(texts.map(Number))].sort((a, b) => a - b))
  expect(last.countOf('send_failed')).toBe(0)
  await recipient.close()
})

test('a recipient that is killed while it handles a message handles that message again in its next process, and no other message twice', async () => {
  await using world = await World.open()
  await using recipient = await writtenPeer(world)
  const sender = await connect(await world.enrol())
  await Promise.all(numbers(0, 40).map((text) => sender.send(recipient.key, text)))
  const ended: string[] = []
  {
    await using life = new Life('receive', ...recipient.files, '7')
    const settledOf = () => life.told('mutedSettles').reduce((sum, count) => sum + Number(count), 0)
    await until('all but the stuck one are settled, as far as it knows', () => settledOf() === 39)
    ended.push(...life.told('ended'))
  }
  expect(await world.count('message_queue')).toBe(40)

  await using next = new Life('receive', ...recipient.files)
  await until('the queue is empty', async () => (await world.count('message_queue')) === 0)
  expect(next.told('begun')).toEqual(['7'])
  ended.push(...next.told('ended'))
  expect(ended.map(Number).sort((a, b) => a - b)).toEqual(numbers(0, 40).map(Number))
  await sender.close()
})

/** Returns a network that drops settles while `isLossy` returns true. */
function settleLosing(isLossy: () => boolean): NonNullable<ConnectOptions['webSocket']> {
  return class extends WebSocket {
    override send(wire: Uint8Array<ArrayBuffer>): void {
      const decoded = decodeClientFrame('binary', wire)
      if (!isLossy() || !decoded.ok || decoded.frame.type !== 'settle') super.send(wire)
    }
  } as unknown as NonNullable<ConnectOptions['webSocket']>
}

test('a recipient without a store handles each message from 150 senders once, even though no settle was committed', async () => {
  await using world = await World.open()
  const sender = await world.enrol()
  const place = await world.enrol()
  for (const text of numbers(0, 150)) {
    await using life = await connect(sender) // each process starts its own stream
    await life.send(place.identity.signing.publicKey, text)
  }
  let isLossy = true
  const recipient = await connect({ ...place, webSocket: settleLosing(() => isLossy) })
  const handled: string[] = []
  recipient.onMessage((message) => void handled.push(message.text()))
  await until('all are handled', () => handled.length === 150)
  expect(await world.count('message_queue')).toBe(150)
  await world.broker.kill()
  isLossy = false
  await world.restart()
  await until('the queue is empty', async () => (await world.count('message_queue')) === 0)
  expect(handled).toEqual(numbers(0, 150))
  expect(recipient.counters.duplicates).toBe(150)
  await recipient.close()
})
