/**
 * Simulates a disk that loses power. Of data that was appended after the last sync, a prefix survives, whose last bytes
 * may be wrong. Of each overwrite in place, any part survives. A rename or removal may be lost until its folder is synced, but none survives without the earlier ones.
 */
import type { AppendFile, FileLayer, InPlaceFile } from '../stores/file/files.ts'

interface Content {
  bytes: Uint8Array
  syncedBytes: number
  /** Bytes that were overwritten in place since the last sync, oldest first. */
  overwritten: { at: number; former: Uint8Array }[]
}

type Names = Map<string, Content>

export class PowerCut extends Error {}

export class TestingDisk implements FileLayer {
  /** The number of changes of the disk so far. */
  steps = 0
  /** The step during which the power fails. */
  cutAtStep = Infinity
  /** The contents of all files, also of those that were replaced or removed: their blocks stay on a disk. */
  private readonly written: Content[] = []
  private names: Names = new Map()
  private syncedNames: Names = new Map()
  /** Changes since the folder was last synced. */
  private unsynced: ((names: Names) => void)[] = []

  /** Returns the file's bytes, which a test may damage. */
  contentOf(path: string): Uint8Array {
    return this.names.get(path)!.bytes
  }

  /** Returns what a thief of the disk can read. */
  everyContent(): Uint8Array[] {
    return this.written.map(({ bytes }) => bytes)
  }

  put(path: string, bytes: Uint8Array): void {
    const content = { bytes, syncedBytes: bytes.length, overwritten: [] }
    this.names.set(path, content)
    this.syncedNames.set(path, content)
  }

  async read(path: string): Promise<Uint8Array | null> {
    return this.names.get(path)?.bytes.slice() ?? null
  }

  async create(path: string): Promise<AppendFile> {
    const content = this.emptyContent()
    this.changeNames((names) => names.set(path, content))
    return {
      append: async (bytes) => {
        this.step(() => {
          content.bytes = joined(content.bytes, bytes)
        })
      },
      sync: async () => {
        this.syncStep(() => {
          content.syncedBytes = content.bytes.length
        })
      },
      close: async () => undefined,
    }
  }

  async openInPlace(path: string): Promise<InPlaceFile> {
    const content = this.names.get(path) ?? this.emptyContent()
    if (!this.names.has(path)) this.changeNames((names) => names.set(path, content))
    return {
      write: async (at, bytes) => {
        this.step(() => overwrite(content, at, bytes))
      },
      sync: async () => {
        this.syncStep(() => {
          content.syncedBytes = content.bytes.length
          content.overwritten = []
        })
      },
      close: async () => undefined,
    }
  }

  async rename(from: string, to: string): Promise<void> {
    this.changeNames((names) => {
      const content = names.get(from)
      if (!content) return
      names.delete(from)
      names.set(to, content)
    })
  }

  async remove(path: string): Promise<void> {
    this.changeNames((names) => names.delete(path))
  }

  async syncFolder(): Promise<void> {
    this.syncStep(() => {
      this.syncedNames = new Map(this.names)
      this.unsynced = []
    })
  }

  restart(random: () => number): void {
    const names = new Map(this.syncedNames)
    for (const change of this.unsynced.slice(0, below(random, this.unsynced.length + 1))) change(names)
    for (const content of new Set(names.values())) tear(content, random)
    this.names = names
    this.syncedNames = new Map(names)
    this.unsynced = []
    this.cutAtStep = Infinity
  }

  private emptyContent(): Content {
    const content = { bytes: new Uint8Array(0), syncedBytes: 0, overwritten: [] }
    this.written.push(content)
    return content
  }

  private changeNames(change: (names: Names) => void): void {
    this.step(() => {
      change(this.names)
      this.unsynced.push(change)
    })
  }

  /** Runs a step. `restart` decides whether a step during which the power fails has an effect. */
  private step(effect: () => void): void {
    this.steps += 1
    if (this.steps > this.cutAtStep) throw new PowerCut()
    effect()
    if (this.steps === this.cutAtStep) throw new PowerCut()
  }

  /** Runs a sync, which has no effect if the power fails during it. */
  private syncStep(effect: () => void): void {
    this.steps += 1
    if (this.steps >= this.cutAtStep) throw new PowerCut()
    effect()
  }
}

function overwrite(content: Content, at: number, bytes: Uint8Array): void {
  const whole = new Uint8Array(Math.max(content.bytes.length, at + bytes.length))
  whole.set(content.bytes)
  content.overwritten.push({ at, former: whole.slice(at, at + bytes.length) })
  whole.set(bytes, at)
  content.bytes = whole
}

function joined(head: Uint8Array, tail: Uint8Array): Uint8Array {
  const whole = new Uint8Array(head.length + tail.length)
  whole.set(head)
  whole.set(tail, head.length)
  return whole
}

function tear(content: Content, random: () => number): void {
  const { bytes, syncedBytes } = content
  for (const { at, former } of content.overwritten.reverse()) {
    const keptBytes = below(random, former.length + 1)
    if (random() < 0.5) bytes.set(former.slice(keptBytes), at + keptBytes)
  }
  content.overwritten = []
  const end = syncedBytes + below(random, bytes.length - syncedBytes + 1)
  const left = bytes.slice(0, end)
  // A disk writes blocks in any order, so lose some bytes before the end.
  const isHollow = end > syncedBytes && random() < 0.3
  if (isHollow) left.fill(0, syncedBytes + below(random, end - syncedBytes))
  content.bytes = left
  content.syncedBytes = end
}

const below = (random: () => number, bound: number) => Math.floor(random() * bound)
