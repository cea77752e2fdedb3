/**
 * This scenario uploads and downloads a large file, then does so again while sender, recipient and broker are killed
 * halfway.
 */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { open } from 'node:fs/promises'
import { join } from 'node:path'
import type { BrokerProgram } from '@sealpost/broker-program'
import type { BrokerAddress, MeshMembers } from '@sealpost/harness/members/mesh'
import { MemoryGrowth } from '@sealpost/harness/programs/machine'
import { newBrokerKeyFile, type OwnBrokerOptions, startOwnBroker } from '@sealpost/harness/programs/own-broker'
import { type Teardown, temporaryFolder } from '@sealpost/harness/programs/teardown'
import { figure } from '@sealpost/harness/report/text'
import { CHUNK_BYTES_MAX, chunkLayout } from '@sealpost/identity'
import { clockMs } from '@sealpost/sdk'
import { planOf } from '../../generators/plan.ts'
import { newMesh, type RunContext } from '../../run/run.ts'
import { costCheck, Effort, type Findings, mailCheck, type Scenario } from '../scenario.ts'
import { AttachmentPeer, type FileOrder } from './attachment-peer.ts'

const GROWN_MB_MAX = 64

export const attachments: Scenario = {
  name: 'attachments',
  summary:
    'upload and download a file of 100 MB, and resume after a kill of the sender, the reader and the broker half way',
  bar: `memory grows by at most ${GROWN_MB_MAX} MB; 1 chunk twice at most`,
  reported: null,
  run,
}

const MIB = 2 ** 20
const SAMPLE_MS = 50

async function run(context: RunContext, teardown: Teardown): Promise<Findings> {
  const bytes = (context.options.isQuick ? 10 : 100) * MIB
  const { chunks } = chunkLayout(bytes, CHUNK_BYTES_MAX)
  const stage = await FileStage.open(context, bytes, teardown)
  const { display, target } = context
  const effort = new Effort()
  display.step(`${bytes / MIB} MB up and down`)
  const { text, upMs, downMs, isSame, brokerMb, senderMb, readerMb } = await stage.wholeTransfer()
  display.step('killing the sender half way')
  const upKilled = await stage.killedSender()
  display.step('killing the reader half way')
  const downKilled = await stage.killedReader(text)
  display.step('killing the broker half way')
  const brokerKilled = await Promise.race([stage.killedBroker(target.databaseUrl), target.failed])
  const mbPerSecond = (ms: number) => bytes / MIB / (ms / 1000)
  const twice = {
    sender: upKilled - chunks,
    reader: downKilled.gets - chunks,
    brokerUp: brokerKilled.puts - chunks,
    brokerDown: brokerKilled.gets - chunks,
  }
  const grown = { broker: brokerMb, sender: senderMb, reader: readerMb }
  const growthCheck = (name: string, mb: number) =>
    costCheck(mb <= GROWN_MB_MAX, `The ${name} grew by at most ${GROWN_MB_MAX} MB (${figure(mb)}).`)
  const twiceCheck = (claim: string, chunksTwice: number) => mailCheck(chunksTwice <= 1, `${claim} (${chunksTwice}).`)
  return {
    headline: `${figure(mbPerSecond(upMs))} MB/s up, ${figure(mbPerSecond(downMs))} MB/s down`,
    shown: `${figure(Math.max(...Object.values(grown)))} MB; ${Math.max(...Object.values(twice))} chunks`,
    sheets: [
      { head: ['memory', 'grown by MB'], rows: Object.entries(grown).map(([name, mb]) => [name, figure(mb)]) },
      {
        head: ['killed half way', 'chunks twice'],
        rows: [
          ['sender', String(twice.sender)],
          ['reader', String(twice.reader)],
          ['broker, up', String(twice.brokerUp)],
          ['broker, down', String(twice.brokerDown)],
        ],
      },
    ],
    facts: [],
    checks: [
      mailCheck(isSame && downKilled.isSame && brokerKilled.isSame, 'The received file equals the sent file.'),
      ...Object.entries(grown).map(([name, mb]) => growthCheck(name, mb)),
      twiceCheck('A killed sender uploaded at most one chunk twice', twice.sender),
      twiceCheck('A killed reader downloaded at most one chunk twice', twice.reader),
      twiceCheck('After a kill of the broker, at most one chunk was uploaded twice', twice.brokerUp),
      twiceCheck('After a kill of the broker, at most one chunk was downloaded twice', twice.brokerDown),
    ],
    graphs: [],
    figures: {
      ...{ bytes, upMbPerSecond: mbPerSecond(upMs), downMbPerSecond: mbPerSecond(downMs) },
      ...{ brokerGrownMb: brokerMb, senderGrownMb: senderMb, readerGrownMb: readerMb },
      ...{ chunksTwiceSender: twice.sender, chunksTwiceReader: twice.reader },
      ...{ chunksTwiceBrokerUp: twice.brokerUp, chunksTwiceBrokerDown: twice.brokerDown },
      generatorShare: effort.share,
    },
  }
}

interface StageFile {
  readonly broker: BrokerAddress
  readonly brokerPid: number | null
  readonly mesh: MeshMembers
  readonly bytes: number
  readonly folder: string
  readonly hash: string
}

/** Two members, a file, and a folder for their output. */
class FileStage {
  readonly #file: StageFile
  readonly #teardown: Teardown

  static async open({ target }: RunContext, bytes: number, teardown: Teardown): Promise<FileStage> {
    const mesh = await newMesh(planOf({ peers: 2 }), target, teardown)
    const folder = await temporaryFolder('files', teardown)
    await writeRandom(join(folder, 'file'), bytes)
    const hash = await hashOf(join(folder, 'file'))
    const { url, brokerKey, pid: brokerPid } = target.shards[0]!
    return new FileStage({ broker: { url, brokerKey }, brokerPid, mesh, bytes, folder, hash }, teardown)
  }

  private constructor(file: StageFile, teardown: Teardown) {
    this.#file = file
    this.#teardown = teardown
  }

  async wholeTransfer() {
    const broker = new MemoryGrowth(this.#file.brokerPid, SAMPLE_MS)
    const startMs = clockMs()
    const up = this.#up('whole')
    const text = await up.done()
    const sentMs = clockMs()
    const down = this.#down('whole', text)
    const path = await down.done()
    const [upMs, downMs] = [sentMs - startMs, clockMs() - sentMs]
    const isSame = await this.#isSame(path)
    return { text, upMs, downMs, isSame, brokerMb: broker.stop(), senderMb: up.grownMb, readerMb: down.grownMb }
  }

  /** Kills the sender halfway. @returns the number of chunks that both runs sent */
  async killedSender(): Promise<number> {
    const first = this.#up('killed')
    await first.reached(this.#file.bytes / 2)
    await first.kill()
    const second = this.#up('killed')
    await second.done()
    return first.chunks + second.chunks
  }

  async killedReader(text: string): Promise<{ gets: number; isSame: boolean }> {
    const first = this.#down('killed', text)
    await first.reached(this.#file.bytes / 2)
    await first.kill()
    const second = this.#down('killed', text)
    const isSame = await this.#isSame(await second.done())
    return { gets: first.chunks + second.chunks, isSame }
  }

  /** Kills a broker during upload and download. @returns the number of chunks sent and requested */
  async killedBroker(databaseUrl: string): Promise<{ puts: number; gets: number; isSame: boolean }> {
    const BROKER_KEY_FILE = await newBrokerKeyFile(this.#teardown)
    const env = { BROKER_KEY_FILE, PLACEMENT: 'any', SHARD_NAME: 'killed' }
    const first = await startOwnBroker({ databaseUrl, env }, this.#teardown)
    const { url, brokerKey } = first
    const again = { databaseUrl, env: { ...env, PORT: new URL(url).port } }
    const sender = this.#up('broker', { url, brokerKey })
    const second = await this.#killAt(sender, first, again)
    const reader = this.#down('broker', await sender.done(), { url, brokerKey })
    await this.#killAt(reader, second, again)
    const isSame = await this.#isSame(await reader.done())
    return { puts: sender.chunks, gets: reader.chunks, isSame }
  }

  /** Replaces the broker halfway through the transfer. */
  async #killAt(peer: AttachmentPeer, broker: BrokerProgram, again: OwnBrokerOptions): Promise<BrokerProgram> {
    await peer.reached(this.#file.bytes / 2)
    broker.kill()
    await broker.exited
    return startOwnBroker(again, this.#teardown)
  }

  #up(name: string, broker = this.#file.broker): AttachmentPeer {
    const { folder, mesh } = this.#file
    const [path, log] = [join(folder, 'file'), join(folder, `${name}.log`)]
    return this.#start(0, broker, { way: 'up', path, log, to: mesh.peerKeys[1]! })
  }

  #down(name: string, text: string, broker = this.#file.broker): AttachmentPeer {
    return this.#start(1, broker, { way: 'down', text, folder: join(this.#file.folder, name) })
  }

  #start(member: number, broker: BrokerAddress, task: FileOrder['task']): AttachmentPeer {
    const { meshId, secrets } = this.#file.mesh
    return new AttachmentPeer({ ...broker, meshId, keys: secrets[member]!, task }, this.#teardown)
  }

  async #isSame(path: string): Promise<boolean> {
    return (await hashOf(path)) === this.#file.hash
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
