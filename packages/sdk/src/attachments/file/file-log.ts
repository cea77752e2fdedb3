/** The log of an upload as a file that only its owner can read. */
import { open, readFile, rename, rm } from 'node:fs/promises'
import type { UploadLog } from '../upload-log.ts'

export class FileUploadLog implements UploadLog {
  readonly #path: string

  constructor(path: string) {
    this.#path = path
  }

  async read(): Promise<Uint8Array | null> {
    try {
      return await readFile(this.#path)
    } catch (error) {
      if ((error as { code?: string }).code === 'ENOENT') return null
      throw error
    }
  }

  async start(bytes: Uint8Array): Promise<void> {
    const fresh = `${this.#path}.new`
    await written(fresh, 'w', bytes)
    await rename(fresh, this.#path)
  }

  append(bytes: Uint8Array): Promise<void> {
    return written(this.#path, 'a', bytes)
  }

  /** When the message that names the file is on its way. */
  remove(): Promise<void> {
    return rm(this.#path, { force: true })
  }
}

async function written(path: string, flags: 'w' | 'a', bytes: Uint8Array): Promise<void> {
  const file = await open(path, flags, 0o600)
  try {
    await file.writeFile(bytes)
    await file.datasync()
  } finally {
    await file.close()
  }
}
