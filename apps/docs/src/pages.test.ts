import { expect, test } from 'vitest'
import { placeOf, withLinks } from './pages.ts'

const moved = (target: string) => `/${placeOf(target)}`

test('links between files of the repository become links between pages of the site', () => {
  const text = '[a](../PROTOCOL.md#http) ![b](x.svg) [c](README.md), [d](../../SECURITY.md)'
  expect(withLinks(text, 'docs/deploy/README.md', moved)).toBe(
    '[a](/protocol#http) ![b](/deploy/x.svg) [c](/deploy/index), [d](/reporting)',
  )
})

test('external links, anchors and links in code stay unchanged', () => {
  const text = '[a](https://b.example/C.md) [d](#e) `[f](g.md)`\n```text\n[h](i.md)\n```\n'
  expect(withLinks(text, 'docs/START.md', moved)).toBe(text)
})
