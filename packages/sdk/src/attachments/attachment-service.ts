/** What is asked of a broker for attachments. */
import { type AttachmentId, fromBase64url, type GroupId, type Millis, type PeerKey, toBase64url } from '@sealpost/std'
import type { SealpostError } from '../errors.ts'
import type { HttpAccess, HttpAsk } from '../http/access.ts'

export interface UploadSpec {
  readonly id: AttachmentId
  /** Of all sealed chunks. */
  readonly bytes: number
  readonly chunkBytes: number
  /** 0: the broker's own. */
  readonly keepSeconds: number
  readonly to: readonly PeerKey[] | GroupId
}

export interface RemoteStatus {
  readonly bytes: number
  readonly chunkBytes: number
  readonly isComplete: boolean
  readonly expiresAtMs: Millis
  /** Chunks that are there, from first to last. */
  readonly present: readonly (readonly [first: number, last: number])[]
  /** 32 bytes for each chunk; null until it is complete. */
  readonly hashes: Uint8Array | null
}

/** What uploads and downloads need of a broker. */
export interface AttachmentBroker {
  create(room: UploadSpec): Promise<void>
  status(id: AttachmentId): Promise<RemoteStatus>
  put(id: AttachmentId, chunk: number, sealed: { readonly bytes: Uint8Array; readonly hash: Uint8Array }): Promise<void>
  get(id: AttachmentId, chunk: number): Promise<Uint8Array>
  complete(id: AttachmentId, hash: Uint8Array): Promise<void>
}

/** Of a chunk that never arrives while other requests do. */
const PUT_TRIES = 5

/** All of them throw as `HttpAccess.ask`. */
export class AttachmentService implements AttachmentBroker {
  readonly #access: HttpAccess
  readonly #path: string
  readonly #signal: AbortSignal | undefined

  constructor(access: HttpAccess, signal?: AbortSignal) {
    this.#access = access
    this.#path = `/v1/meshes/${access.meshId}/attachments`
    this.#signal = signal
  }

  async create({ to, ...room }: UploadSpec): Promise<void> {
    const json = { ...room, ...(typeof to === 'string' ? { group: to } : { recipients: to }) }
    await this.#access.ask({ method: 'POST', path: this.#path, json, signal: this.#signal })
  }

  async status(id: AttachmentId): Promise<RemoteStatus> {
    const answer = await this.#access.ask({ method: 'GET', path: `${this.#path}/${id}`, signal: this.#signal })
    const status = answer.json<Omit<RemoteStatus, 'hashes'> & { hashes: string | null }>()
    return { ...status, hashes: status.hashes === null ? null : fromBase64url(status.hashes) }
  }

  /** When no answer comes it waits until the broker is there, and says it again only if it has not arrived. */
  async put(id: AttachmentId, chunk: number, { bytes, hash }: { bytes: Uint8Array; hash: Uint8Array }): Promise<void> {
    const path = `${this.#path}/${id}/chunks/${chunk}?hash=${toBase64url(hash)}`
    const ask: HttpAsk = { method: 'PUT', path, bytes, isOnce: true, signal: this.#signal }
    for (let tries = 1; ; tries++) {
      try {
        await this.#access.ask(ask)
        return
      } catch (error) {
        if ((error as SealpostError).code !== 'connection_lost' || tries === PUT_TRIES) throw error
      }
      const { present } = await this.status(id)
      if (present.some(([first, last]) => chunk >= first && chunk <= last)) return
    }
  }

  async get(id: AttachmentId, chunk: number): Promise<Uint8Array> {
    const path = `${this.#path}/${id}/chunks/${chunk}`
    return (await this.#access.ask({ method: 'GET', path, signal: this.#signal })).bytes
  }

  async complete(id: AttachmentId, hash: Uint8Array): Promise<void> {
    const json = { hash: toBase64url(hash) }
    await this.#access.ask({ method: 'POST', path: `${this.#path}/${id}/complete`, json, signal: this.#signal })
  }

  async end(id: AttachmentId): Promise<void> {
    await this.#access.ask({ method: 'DELETE', path: `${this.#path}/${id}`, signal: this.#signal })
  }
}
