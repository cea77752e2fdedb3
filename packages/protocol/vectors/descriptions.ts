/** Machine-readable descriptions of the socket protocol: `frames.schema.json` and `asyncapi.json`. */
export { asyncApiText } from './asyncapi.ts'
export { schemaText } from './json-schema.ts'
