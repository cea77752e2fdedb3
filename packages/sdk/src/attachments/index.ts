/** Files beside messages: `@sealpost/sdk/attachments`. Runs in browsers, Node and Bun. */
export { type Attachment, attachmentText, readAttachment } from '@sealpost/identity'
export type { HttpOptions, PeerCredentials } from '../http/access.ts'

export { Attachments, attachmentOf } from './attachments.ts'
export { type DownloadOptions, plainBytes } from './download.ts'
export type { AttachmentSource, TransferProgress, UploadLog, UploadOptions } from './upload.ts'
