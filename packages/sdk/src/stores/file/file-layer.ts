/** The few things a journal asks of a file system, so that a test can cut the power between any two of them. */
import { type FileHandle, open, readFile, rename, rm } from 'node:fs/promises'
import { platform } from 'node:os'
import { dirname } from 'node:path'

export interface FileLayer {
  /** Null: there is no such file. */
  read(path: string): Promise<Uint8Array | null>
  /** Makes a file that only its owner may read, or empties the one there is. */
  create(path: string): Promise<AppendFile>
  /** In place of what is there, all or nothing; sure to last after `syncFolder`. */
  rename(from: string, to: string): Promise<void>
  remove(path: string): Promise<void>
  /** Of the folder this path is in. */
  syncFolder(path: string): Promise<void>
}

export interface AppendFile {
  append(bytes: Uint8Array): Promise<void>
  sync(): Promise<void>
  close(): Promise<void>
}

export const nodeFiles: FileLayer = {
  read: async (path) => {
    try {
      const { buffer, byteOffset, length } = await readFile(path)
      return new Uint8Array(buffer, byteOffset, length) // a `Buffer` cuts pieces that are no copies
    } catch (error) {
      if ((error as { code?: unknown }).code === 'ENOENT') return null
      throw error
    }
  },
  create: async (path) => appendTo(await open(path, 'w', 0o600)),
  rename,
  remove: (path) => rm(path, { force: true }),
  syncFolder: async (path) => {
    if (platform() === 'win32') return // it has no such thing: a rename there is written through
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
      for (let done = 0; done < bytes.length; ) {
        const { bytesWritten } = await file.write(bytes, done, bytes.length - done, end)
        done += bytesWritten
        end += bytesWritten
      }
    },
    sync: () => file.datasync(),
    close: () => file.close(),
  }
}
