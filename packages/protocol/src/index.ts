/** Exports the wire format: frames, their two forms, refusals and limits. `docs/PROTOCOL.md` is its specification. */
export {
  binaryForm,
  type ClientForm,
  type Decoded,
  encodeBinary,
  type KeyProof,
  type ServerForm,
} from './codec.ts'
export * from './frames.ts'
export * from './items.ts'
export {
  clientForms,
  decodeClientFrame,
  decodeFields,
  decodeServerFrame,
  encode,
  encodeFields,
  encodeJson,
  isNestedDeeper,
  type JsonFields,
  serverForms,
} from './json.ts'
export * from './limits.ts'
export * from './queue-nouns.ts'
export * from './refusals.ts'
export * from './terms.ts'
