/** Exports key files for applications that have the SDK alone: `@sealpost/sdk/key-file`. Not for browsers. */
export {
  beginBoxKeyRotation,
  completeBoxKeyRotation,
  type KeyFile,
  type KeyFileLock,
  type KeyFileRead,
  type PeerKeyFile,
  readKeyFile,
  replaceKeyFile,
  writeKeyFile,
} from '@sealpost/identity/key-file'
