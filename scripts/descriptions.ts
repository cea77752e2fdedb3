/**
 * Writes the descriptions of the interfaces to `docs/reference`: JSON Schema, AsyncAPI, OpenAPI, and the SDK's API
 * reference. `bun run docs:build` runs this first.
 */
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { adminDocumentText } from '@sealpost/broker/admin-document'
import { openApiText } from '@sealpost/broker/http-document'
import { asyncApiText, schemaText } from '@sealpost/protocol/descriptions'
import { sdkReference } from './packages/reference.ts'

const folder = join(import.meta.dirname, '../docs/reference')
await mkdir(folder, { recursive: true })
await writeFile(join(folder, 'frames.schema.json'), schemaText())
await writeFile(join(folder, 'asyncapi.json'), asyncApiText())
await writeFile(join(folder, 'openapi.json'), openApiText())
await writeFile(join(folder, 'admin-openapi.json'), adminDocumentText())

const site = join(import.meta.dirname, '../apps/docs/generated')
await mkdir(site, { recursive: true })
await writeFile(join(site, 'sdk-reference.md'), sdkReference())
