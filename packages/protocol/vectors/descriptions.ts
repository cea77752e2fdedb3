/** The socket protocol described for machines: `frames.schema.json` and `asyncapi.json`. */
export { asyncApiText } from './asyncapi.ts'
export { schemaText } from './json-schema.ts'
