export { asyncApiText } from './asyncapi.ts'
export { schemaText } from './json-schema.ts'
