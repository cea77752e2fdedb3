/** A large file up and down, and with its sender, its reader and its broker killed half way. */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { mkdtemp, open, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { BrokerProgram } from '@sealpost/broker-program'
import type { BrokerAddress, MeshMembers } from '@sealpost/harness/members/mesh'
import { startOwnBroker } from '@sealpost/harness/programs/own-broker'
import { processFacts } from '@sealpost/harness/programs/process-facts'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { figure } from '@sealpost/harness/report/text'
import { CHUNK_BYTES_MAX, chunkLayout, generateSigningKeys } from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { clockMs } from '@sealpost/sdk'
import { ALONE } from '../../generators/spread.ts'
import { newMeshes } from '../../run/run.ts'
import { Effort } from '../effort.ts'
import type { Findings, Scenario, ScenarioSetup } from '../scenario.ts'
import type { FileOrder } from './attachment-peer.ts'
import { FileLife } from './file-life.ts'

const GROWN_MB_MAX = 64

export const attachments: Scenario = {
  name: 'attachments',
  summary: 'a file of 100 MB up and down, and resumed after a kill of its sender, its reader and its broker half way',
  bar: `memory grows by at most ${GROWN_MB_MAX} MB; 1 chunk twice at most`,
  reported: null,
  run,
}

const MIB = 2 ** 20
const SAMPLE_MS = 50

async function run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings> {
  const bytes = (setup.options.isQuick ? 10 : 100) * MIB
  const { chunks } = chunkLayout(bytes, CHUNK_BYTES_MAX)
  const stage = await FileStage.open(setup, bytes, teardown)
  const { display, target } = setup
  const effort = new Effort()
  display.step(`${bytes / MIB} MB up and down`)
  const { whole, text } = await stage.wholeTransfer()
  display.step('a sender that is killed half way')
  const upKilled = await stage.killedSender()
  display.step('a reader that is killed half way')
  const downKilled = await stage.killedReader(text)
  display.step('a broker that is killed half way')
  const brokerKilled = await Promise.race([stage.killedBroker(target.databaseUrl), target.failed])
  const { upMs, downMs, brokerMb, senderMb, readerMb, isSame } = whole
  const mbPerSecond = (ms: number) => bytes / MIB / (ms / 1000)
  const twice = {
    sender: upKilled - chunks,
    reader: downKilled.gets - chunks,
    brokerUp: brokerKilled.puts - chunks,
    brokerDown: brokerKilled.gets - chunks,
  }
  const twiceMax = Math.max(...Object.values(twice))
  return {
    headline: `${figure(mbPerSecond(upMs))} MB/s up, ${figure(mbPerSecond(downMs))} MB/s down`,
    shown: `${figure(Math.max(brokerMb, senderMb, readerMb))} MB; ${twiceMax} chunks`,
    sheets: [
      {
        head: ['memory', 'grown by MB'],
        rows: [['broker', figure(brokerMb)], ['sender', figure(senderMb)], ['reader', figure(readerMb)]], // biome-ignore format: a table
      },
      {
        head: ['killed half way', 'chunks twice'],
        rows: [['sender', String(twice.sender)], ['reader', String(twice.reader)], ['broker, up', String(twice.brokerUp)], ['broker, down', String(twice.brokerDown)]], // biome-ignore format: a table
      },
    ],
    facts: [],
    checks: [
      { about: 'mail', isMet: isSame && downKilled.isSame && brokerKilled.isSame, sentence: 'What came is what went.' },
      { about: 'cost', isMet: brokerMb <= GROWN_MB_MAX, sentence: `The broker grew by at most ${GROWN_MB_MAX} MB (${figure(brokerMb)}).` },
      { about: 'cost', isMet: senderMb <= GROWN_MB_MAX, sentence: `The sender grew by at most ${GROWN_MB_MAX} MB (${figure(senderMb)}).` },
      { about: 'cost', isMet: readerMb <= GROWN_MB_MAX, sentence: `The reader grew by at most ${GROWN_MB_MAX} MB (${figure(readerMb)}).` },
      { about: 'mail', isMet: twice.sender <= 1, sentence: `Of a sender that was killed at most one chunk went twice (${twice.sender}).` },
      { about: 'mail', isMet: twice.reader <= 1, sentence: `To a reader that was killed at most one chunk came twice (${twice.reader}).` },
      { about: 'mail', isMet: twice.brokerUp <= 1, sentence: `To a broker that was killed at most one chunk went twice (${twice.brokerUp}).` },
      { about: 'mail', isMet: twice.brokerDown <= 1, sentence: `From a broker that was killed at most one chunk came twice (${twice.brokerDown}).` },
    ], // biome-ignore format: a line each
    graphs: [],
    figures: {
      bytes,
      upMbPerSecond: mbPerSecond(upMs),
      downMbPerSecond: mbPerSecond(downMs),
      brokerGrownMb: brokerMb,
      senderGrownMb: senderMb,
      readerGrownMb: readerMb,
      chunksTwiceSender: twice.sender,
      chunksTwiceReader: twice.reader,
      chunksTwiceBrokerUp: twice.brokerUp,
      chunksTwiceBrokerDown: twice.brokerDown,
      generatorShare: effort.share,
    },
  }
}

/** Two members, a file, and a folder for what they leave. */
class FileStage {
  readonly #place: BrokerAddress
  readonly #pid: number | null
  readonly #mesh: MeshMembers
  readonly #bytes: number
  readonly #folder: string
  readonly #hash: string
  readonly #teardown: Teardown

  static async open({ target, options }: ScenarioSetup, bytes: number, teardown: Teardown): Promise<FileStage> {
    const { payloadBytes, seed } = options
    const plan = { peers: 2, total: 0, rate: null, payloadBytes, seed, isOneWay: false, spread: ALONE }
    const [mesh] = (await newMeshes({ plan, target }, teardown)) as [MeshMembers]
    const folder = await teardown.starting(mkdtemp(join(tmpdir(), 'sealpost-files-')), (made) => ({
      end: () => rm(made, { recursive: true, force: true }),
    }))
    await writeRandom(join(folder, 'file'), bytes)
    const hash = await hashOf(join(folder, 'file'))
    const [{ url, brokerKey, pid }] = target.shards as [(typeof target.shards)[number]]
    return new FileStage({ place: { url, brokerKey }, pid, mesh, bytes, folder, hash }, teardown)
  }

  private constructor(
    parts: { place: BrokerAddress; pid: number | null; mesh: MeshMembers; bytes: number; folder: string; hash: string },
    teardown: Teardown,
  ) {
    this.#place = parts.place
    this.#pid = parts.pid
    this.#mesh = parts.mesh
    this.#bytes = parts.bytes
    this.#folder = parts.folder
    this.#hash = parts.hash
    this.#teardown = teardown
  }

  async wholeTransfer() {
    const broker = new MemoryWatch(this.#pid)
    const startMs = clockMs()
    const up = this.#up('whole')
    const text = await up.done()
    const sentMs = clockMs()
    const down = this.#down('whole', text)
    const path = await down.done()
    const [upMs, downMs] = [sentMs - startMs, clockMs() - sentMs]
    const isSame = (await hashOf(path)) === this.#hash
    const grown = { brokerMb: broker.stop(), senderMb: up.grownMb, readerMb: down.grownMb }
    return { text, whole: { upMs, downMs, isSame, ...grown } }
  }

  /** @returns the chunks that left both lives */
  async killedSender(): Promise<number> {
    const first = this.#up('killed')
    await first.reached(this.#bytes / 2)
    await first.kill()
    const second = this.#up('killed')
    await second.done()
    return first.chunks + second.chunks
  }

  async killedReader(text: string): Promise<{ gets: number; isSame: boolean }> {
    const first = this.#down('killed', text)
    await first.reached(this.#bytes / 2)
    await first.kill()
    const second = this.#down('killed', text)
    const isSame = (await hashOf(await second.done())) === this.#hash
    return { gets: first.chunks + second.chunks, isSame }
  }

  /** With one of its own, killed in both directions. @returns the chunks that left the sender, and that the reader asked for */
  async killedBroker(databaseUrl: string): Promise<{ puts: number; gets: number; isSame: boolean }> {
    const keyFile = join(this.#folder, 'broker.json')
    await writeKeyFile(keyFile, { kind: 'broker', signing: generateSigningKeys() })
    const env = { BROKER_KEY_FILE: keyFile, PLACEMENT: 'any', SHARD_NAME: 'killed' }
    const first = await startOwnBroker({ databaseUrl, env }, this.#teardown)
    const { url, brokerKey } = first
    const again = { databaseUrl, env: { ...env, PORT: new URL(url).port } }
    const sender = this.#up('broker', { url, brokerKey })
    const second = await this.#killAt(sender, first, again)
    const reader = this.#down('broker', await sender.done(), { url, brokerKey })
    await this.#killAt(reader, second, again)
    const isSame = (await hashOf(await reader.done())) === this.#hash
    return { puts: sender.chunks, gets: reader.chunks, isSame }
  }

  /** Half way. @returns the one in its place */
  async #killAt(
    life: FileLife,
    broker: BrokerProgram,
    again: Parameters<typeof startOwnBroker>[0],
  ): Promise<BrokerProgram> {
    await life.reached(this.#bytes / 2)
    broker.kill()
    await broker.exited
    return startOwnBroker(again, this.#teardown)
  }

  #up(name: string, place = this.#place): FileLife {
    const [path, log] = [join(this.#folder, 'file'), join(this.#folder, `${name}.log`)]
    return this.#life(0, place, { way: 'up', path, log, to: this.#mesh.peerKeys[1]! })
  }

  #down(name: string, text: string, place = this.#place): FileLife {
    return this.#life(1, place, { way: 'down', text, folder: join(this.#folder, name) })
  }

  #life(member: number, place: BrokerAddress, task: FileOrder['task']): FileLife {
    const { meshId, secrets } = this.#mesh
    return new FileLife({ ...place, meshId, keys: secrets[member]!, task }, this.#teardown)
  }
}

/** How far the memory of a program goes over what it was. */
class MemoryWatch {
  readonly #rssMb: () => number
  readonly #baseMb: number
  readonly #timer: ReturnType<typeof setInterval>
  #peakMb: number

  constructor(pid: number | null) {
    this.#rssMb = () => (pid === null ? 0 : (processFacts(pid)?.rssMb ?? 0))
    this.#baseMb = this.#rssMb()
    this.#peakMb = this.#baseMb
    this.#timer = setInterval(() => (this.#peakMb = Math.max(this.#peakMb, this.#rssMb())), SAMPLE_MS)
  }

  stop(): number {
    clearInterval(this.#timer)
    return this.#peakMb - this.#baseMb
  }
}

async function writeRandom(path: string, bytes: number): Promise<void> {
  const file = await open(path, 'w')
  const part = new Uint8Array(MIB)
  for (let at = 0; at < bytes; at += MIB) {
    for (let from = 0; from < MIB; from += 65_536) crypto.getRandomValues(part.subarray(from, from + 65_536))
    await file.write(part)
  }
  await file.close()
}

async function hashOf(path: string): Promise<string> {
  const hash = createHash('sha256')
  for await (const part of createReadStream(path)) hash.update(part)
  return hash.digest('hex')
}
