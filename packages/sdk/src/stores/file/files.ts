/** The file system under a store. */
import { constants, type FileHandle, open, readFile, rename, rm } from 'node:fs/promises'
import { platform } from 'node:os'
import { dirname } from 'node:path'

/** The file system operations of a journal, so that a test can cut the power between any two of them. @internal */
export interface FileLayer {
  /** Reads a file. Resolves with null if it does not exist. */
  read(path: string): Promise<Uint8Array | null>
  /** Creates a file that only its owner can read, or truncates an existing one. */
  create(path: string): Promise<AppendFile>
  /** Opens a file whose bytes are overwritten in place, or creates one that only its owner can read. */
  openInPlace(path: string): Promise<InPlaceFile>
  /** Renames a file, which replaces the target atomically. Durable after `syncFolder`. */
  rename(from: string, to: string): Promise<void>
  remove(path: string): Promise<void>
  /** Syncs the folder of this path. */
  syncFolder(path: string): Promise<void>
}

/** @internal */
export interface AppendFile {
  append(bytes: Uint8Array): Promise<void>
  sync(): Promise<void>
  close(): Promise<void>
}

/** @internal */
export interface InPlaceFile {
  write(at: number, bytes: Uint8Array): Promise<void>
  sync(): Promise<void>
  close(): Promise<void>
}

/** @internal */
export const nodeFiles: FileLayer = {
  read: async (path) => {
    try {
      const { buffer, byteOffset, length } = await readFile(path)
      return new Uint8Array(buffer, byteOffset, length) // a `Uint8Array`, because slices of a `Buffer` are not copies
    } catch (error) {
      if ((error as { code?: unknown }).code === 'ENOENT') return null
      throw error
    }
  },
  create: async (path) => appendTo(await open(path, 'w', 0o600)),
  openInPlace: async (path) => {
    const file = await open(path, constants.O_RDWR | constants.O_CREAT, 0o600)
    return {
      write: (at, bytes) => writeAll(file, bytes, at),
      sync: () => file.datasync(),
      close: () => file.close(),
    }
  },
  rename,
  remove: (path) => rm(path, { force: true }),
  syncFolder: async (path) => {
    if (platform() === 'win32') return // Windows can't sync folders, but writes renames through
    const folder = await open(dirname(path), 'r')
    try {
      await folder.sync()
    } finally {
      await folder.close()
    }
  },
}

function appendTo(file: FileHandle): AppendFile {
  let end = 0
  return {
    append: async (bytes) => {
      await writeAll(file, bytes, end)
      end += bytes.length
    },
    sync: () => file.datasync(),
    close: () => file.close(),
  }
}

async function writeAll(file: FileHandle, bytes: Uint8Array, at: number): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const { bytesWritten } = await file.write(bytes, done, bytes.length - done, at + done)
    done += bytesWritten
  }
}
