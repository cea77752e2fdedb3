/** Exports key files for applications that have only the SDK (`@sealpost/sdk/key-file`). Not for browsers. */
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
