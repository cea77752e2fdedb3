import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { openApiDocument, openApiText } from './discovery.ts'
import { httpRefusals } from './tokens.ts'

test('the document has no dangling reference, and every request except those for a token requires one', () => {
  const { paths, components } = openApiDocument()
  const referred = [...openApiText().matchAll(/"#\/components\/schemas\/(\w+)"/g)].map(([, name]) => name)
  expect(Object.keys(components?.schemas ?? {})).toEqual(expect.arrayContaining(referred))
  const operations = Object.entries(paths ?? {}).flatMap(([path, item]) =>
    Object.entries(item).map(([method, { security }]) => [`${method} ${path}`, security !== undefined]),
  )
  expect(operations).toEqual([
    ['post /v1/token/challenge', false],
    ['post /v1/token', false],
    ['delete /v1/token', true],
    ['post /v1/send', true],
    ['post /v1/broadcast', true],
    ['get /v1/inbox', true],
    ['get /v1/inbox/waiting', true],
    ['post /v1/settle', true],
    ['post /v1/lookup', true],
    ['post /v1/sent', true],
    ['get /v1/groups', true],
    ['post /v1/rosters', true],
    ['post /v1/proofs', true],
    ['put /v1/proofs', true],
    ['post /v1/log/checkpoint', true],
    ['post /v1/log/inclusion', true],
    ['post /v1/log/consistency', true],
    ['get /v1/log/entries', true],
    ['put /v1/binding', true],
    ['put /v1/heirs', true],
    ['post /v1/recoveries', true],
    ['post /v1/prekeys', true],
    ['post /v1/prekeys/claim', true],
    ['post /v1/meshes/{mesh}/attachments', true],
    ['get /v1/meshes/{mesh}/attachments/{id}', true],
    ['delete /v1/meshes/{mesh}/attachments/{id}', true],
    ['post /v1/meshes/{mesh}/attachments/{id}/complete', true],
    ['put /v1/meshes/{mesh}/spaces/{space}', true],
    ['get /v1/meshes/{mesh}/spaces/{space}', true],
    ['get /v1/meshes/{mesh}/spaces/{space}/members', true],
    ['post /v1/meshes/{mesh}/spaces/{space}/grants', true],
    ['delete /v1/meshes/{mesh}/spaces/{space}/grants/{keyEpoch}', true],
    ['post /v1/meshes/{mesh}/spaces/{space}/entries', true],
    ['get /v1/meshes/{mesh}/state', true],
    ['get /v1/meshes/{mesh}/history', true],
    ['put /v1/meshes/{mesh}/attachments/{id}/chunks/{chunk}', true],
    ['get /v1/meshes/{mesh}/attachments/{id}/chunks/{chunk}', true],
  ])
})

test('the document contains every code with its status and meaning', () => {
  const specification = readFileSync(join(import.meta.dirname, '../../../../docs/PROTOCOL.md'), 'utf8')
  for (const [code, { status, meaning }] of Object.entries(httpRefusals))
    expect(specification).toContain(`\n| ${status} | \`${code}\` | ${meaning} |\n`)
})
