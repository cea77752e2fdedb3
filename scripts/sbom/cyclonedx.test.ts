import { expect, test } from 'vitest'
import { billOf, type Lock } from './cyclonedx.ts'

const sha = `sha512-${Buffer.alloc(64, 7).toString('base64')}`
const lock: Lock = {
  workspaces: {
    '': { name: 'root', dependencies: { '@ours/app': 'workspace:*' } },
    app: { name: '@ours/app', version: '1.0.0', dependencies: { '@their/lib': '2.0.0' } },
  },
  packages: {
    '@ours/app': ['@ours/app@workspace:app'],
    '@their/lib': ['@their/lib@2.0.0', '', { dependencies: { leaf: '^1.0.0' } }, sha],
    '@their/lib/leaf': ['leaf@1.2.3', '', {}, sha],
    leaf: ['leaf@3.0.0', '', {}, sha],
    tool: ['tool@1.0.0', '', { dependencies: { leaf: '^3.0.0' } }, sha],
  },
}

test('every package is listed once, with its scope, its licence and its hash', () => {
  const licenses = new Map([['leaf@1.2.3', 'MIT']])
  const { components, ...rest } = billOf(lock, { name: 'app', version: '1.0.0', licenses })
  expect(rest).toMatchObject({ bomFormat: 'CycloneDX', specVersion: '1.6', metadata: { component: { name: 'app' } } })
  expect(components.map(({ purl, scope }) => [purl, scope])).toEqual([
    ['pkg:npm/%40their/lib@2.0.0', 'required'],
    ['pkg:npm/leaf@1.2.3', 'required'],
    ['pkg:npm/leaf@3.0.0', 'excluded'],
    ['pkg:npm/tool@1.0.0', 'excluded'],
  ])
  expect(components[1]).toMatchObject({
    licenses: [{ expression: 'MIT' }],
    hashes: [{ alg: 'SHA-512', content: '07'.repeat(64) }],
  })
})
