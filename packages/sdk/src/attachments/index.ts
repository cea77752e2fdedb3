/** Files beside messages: `@sealpost/sdk/attachments`. Runs in browsers, Node and Bun. */
export { type Attachment, attachmentText, readAttachment } from '@sealpost/identity'
export type { HttpOptions } from '../http/access.ts'
export type { PeerCredentials } from '../http/token.ts'
export { Attachments, attachmentOf } from './attachments.ts'
export { type DownloadOptions, plainBytes } from './download.ts'
export type { AttachmentSource, TransferProgress, UploadOptions } from './upload.ts'
export type { UploadLog } from './upload-log.ts'
