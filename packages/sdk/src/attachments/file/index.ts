/** Attachments from and to files, for Node and Bun: `@sealpost/sdk/attachment-files`. */
export { FileUploadLog } from './file-log.ts'
export { safeFileName } from './file-name.ts'
export { fileSource, forgetPart, type SaveOptions, saveAttachment } from './files.ts'
