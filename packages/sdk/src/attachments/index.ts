/** Files beside messages: `@sealpost/sdk/attachments`. Runs in browsers, Node and Bun. */
export { type Attachment, attachmentText, readAttachment } from '@sealpost/identity'
export type { HttpOptions } from '../http/http-access.ts'
export type { HttpPlace } from '../http/http-token.ts'
export { Attachments, attachmentOf } from './attachments.ts'
export { type DownloadOptions, plainBytes } from './download.ts'
export type { AttachmentSource } from './source.ts'
export type { Progress, UploadOptions } from './upload.ts'
export type { UploadLog } from './upload-log.ts'
