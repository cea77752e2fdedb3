/** Files of a peer: sealed on their way out, checked on their way in. They go over HTTP, beside the peer's session. */
import { type Attachment, readAttachment } from '@sealpost/identity'
import { HttpAccess, type HttpOptions, type PeerCredentials } from '../http/access.ts'
import type { Message } from '../inbox/message.ts'
import { AttachmentService } from './attachment-service.ts'
import { type DownloadOptions, download } from './download.ts'
import { type AttachmentSource, sourceOf, type UploadOptions, upload } from './upload.ts'

export class Attachments implements AsyncDisposable {
  readonly #access: HttpAccess

  /** Asks for nothing yet. */
  constructor(place: PeerCredentials, options?: HttpOptions) {
    this.#access = new HttpAccess(place, options)
  }

  /**
   * Resolves when the broker has all of it. Nobody is told: send a message with `attachmentText` of the answer as its
   * `attachment`, to whom it is for.
   * @throws SealpostError `attachment_too_large`, `quota_exceeded`, `mesh_quota_exceeded`, `recipient_unknown`;
   *   `source_changed` when the file is not the one whose upload began; `connection_lost` after 5 minutes without a broker
   */
  upload(source: Blob | AttachmentSource, options: UploadOptions): Promise<Attachment> {
    return upload(new AttachmentService(this.#access, options.signal), sourceOf(source), options)
  }

  /**
   * The file in its order, a chunk at a time, fetched as it is read. What was handed out is genuine; the file is whole when
   * this ends without an error.
   * @throws SealpostError `attachment_unknown`: there is none, or no longer; `attachment_changed`, `attachment_truncated`: the
   *   broker gives something else; `part_differs`; `connection_lost`
   */
  download(attachment: Attachment, options: DownloadOptions = {}): AsyncGenerator<Uint8Array, void, undefined> {
    return download(new AttachmentService(this.#access, options.signal), attachment, options)
  }

  /** For everybody. @throws SealpostError `attachment_unknown`: it is gone already, or another peer's */
  remove(attachment: Pick<Attachment, 'id'>): Promise<void> {
    return new AttachmentService(this.#access).end(attachment.id)
  }

  close(): Promise<void> {
    return this.#access.close()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }
}

/** The file that goes with a message; null: none, or of a later version. */
export const attachmentOf = ({ attachment }: Pick<Message, 'attachment'>): Attachment | null =>
  attachment === null ? null : readAttachment(attachment)
