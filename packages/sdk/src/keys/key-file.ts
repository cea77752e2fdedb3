/** Key files, for applications that have the SDK alone: `@sealpost/sdk/key-file`. Not for browsers. */
export * from '@sealpost/identity/key-file'
