import { expect, test } from 'vitest'
import { drawChart } from './chart.ts'

const chart = {
  title: 'Latency & more',
  x: { name: 'peers', labels: [[10, 'ten']] as const },
  y: { name: 'ms' },
  lines: [
    { name: 'one', points: [[10, 1] as const, [20, 2] as const] },
    { name: 'two', points: [[10, 3] as const, [20, 4] as const], tinted: [12, 15] as const },
  ],
}

test('a chart is well-formed XML that contains its words and has a background', async () => {
  const svg = drawChart(chart)
  const texts: string[] = []
  const elements = new Map<string, number>()
  const rewriter = new HTMLRewriter().on('*', {
    element: ({ tagName }) => void elements.set(tagName, (elements.get(tagName) ?? 0) + 1),
    text: ({ text }) => void texts.push(text),
  })
  await rewriter.transform(new Response(svg)).text()
  for (const word of ['Latency &amp; more', 'peers', 'ms', 'ten', 'one', 'two']) expect(texts).toContain(word)
  expect(elements.get('rect')).toBe(1)
  expect(svg).not.toMatch(/="[^"]*"[^\s/>?]/) // a quote within an attribute
})

test('equal figures give identical charts', () => {
  expect(drawChart(chart)).toBe(drawChart(chart))
})
