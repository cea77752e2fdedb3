/** Tests that the built site is complete, accessible, and loads nothing from other servers. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, globSync, readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { chromiumPath, openBrowser } from '@sealpost/ui/testing'
import axe from 'axe-core'
import type { Browser, Page } from 'playwright-core'
import { afterAll, test as base, beforeAll, describe, expect, test, vi } from 'vitest'
import { allPages, placeOf } from './pages.ts'

vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 })

let site: string
beforeAll(async () => {
  site = await mkdtemp(join(tmpdir(), 'sealpost-site-'))
  const build = spawn(process.execPath, ['run', 'docs:build', site], {
    cwd: join(import.meta.dirname, '../../..'),
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  for (const stream of [build.stdout, build.stderr]) stream.on('data', (bytes) => (output += String(bytes)))
  await once(build, 'close')
  expect(build.exitCode, output).toBe(0)
})
afterAll(() => rm(site, { recursive: true, force: true }))

const read = (path: string) => readFileSync(join(site, path), 'utf8')
const htmlFiles = () => globSync('**/*.html', { cwd: site })
const idsOf = (html: string) => new Set([...html.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id))

/** Returns a page's addresses, and whether it loads them. */
function addressesOf(html: string): { isLoaded: boolean; target: string }[] {
  return [...html.matchAll(/<(\w+)[^>]*? (?:href|src)="([^"]+)"/g)].map(([, tag, target]) => ({
    isLoaded: tag !== 'a',
    target: decodeURI(target!),
  }))
}

describe('the built site', () => {
  test('has every page as HTML and Markdown, and lists all of them in llms.txt', () => {
    const list = read('llms.txt')
    for (const { path } of allPages()) {
      const place = placeOf(path)
      expect(existsSync(join(site, `${place}.html`)), path).toBe(true)
      expect(existsSync(join(site, `${place}.md`)), path).toBe(true)
      expect(list).toContain(`(${place}.md)`)
      expect(read('llms-full.txt')).toContain(`<!-- ${path} -->`)
    }
    for (const [, target] of list.matchAll(/\]\(([^)]+)\)/g)) expect(existsSync(join(site, target!)), target).toBe(true)
  })

  test('has no dead link or anchor, and loads nothing from other servers', () => {
    const dead: string[] = []
    for (const file of htmlFiles()) {
      for (const { isLoaded, target } of addressesOf(read(file))) {
        if (/^(?:https?:)?\/\//.test(target)) expect(isLoaded, `${file} loads ${target}`).toBe(false)
        if (/^(?:\w+:|\/\/)/.test(target)) continue
        const [path = '', anchor] = target.split('#')
        const there = join(dirname(file), path === '' ? file.split('/').at(-1)! : path)
        const found = [there, `${there}.html`, join(there, 'index.html')].find(
          (each) => /\.\w+$/.test(each) && existsSync(join(site, each)),
        )
        if (!found || (anchor && found.endsWith('.html') && !idsOf(read(found)).has(anchor)))
          dead.push(`${file}: ${target}`)
      }
    }
    expect(dead).toEqual([])
    expect(htmlFiles().length).toBeGreaterThan(25)
  })
})

describe('the site in a browser', () => {
  const isMissing = chromiumPath === null && process.env.CI !== 'true'
  if (isMissing) process.stdout.write('skipped: the documentation in a browser, because Chromium is not installed\n')
  const test = base.skipIf(isMissing)
  let browser: Browser
  let server: ReturnType<typeof Bun.serve>
  beforeAll(async () => {
    if (isMissing) return
    browser = await openBrowser()
    const answer = (path: string) => new Response(Bun.file(join(site, path.endsWith('/') ? `${path}index.html` : path)))
    server = Bun.serve({
      hostname: '127.0.0.1',
      port: 0,
      reusePort: false,
      fetch: ({ url }) => answer(new URL(url).pathname),
    })
  })
  afterAll(async () => {
    await browser?.close()
    await server?.stop(true)
  })

  async function seriousFaults(page: Page): Promise<string[]> {
    await page.evaluate(axe.source)
    const { violations } = (await page.evaluate('axe.run()')) as axe.AxeResults
    const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical')
    return serious.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`))
  }

  test.each([
    ['a phone in dark mode', { viewport: { width: 390, height: 844 }, colorScheme: 'dark' }],
    ['a desktop in light mode', { viewport: { width: 1440, height: 900 }, colorScheme: 'light' }],
  ] as const)('is accessible on %s, and contacts no other server', async (_, options) => {
    const context = await browser.newContext(options)
    context.setDefaultTimeout(60_000)
    const page = await context.newPage()
    const asked: string[] = []
    page.on('request', (request) => asked.push(new URL(request.url()).origin))
    for (const path of ['protocol.html', 'reference/cli.html', '', 'start.html', 'reference/config.html']) {
      await page.goto(server.url.href + path)
      await page.getByRole('heading', { level: 1 }).waitFor()
      expect(await page.evaluate('document.documentElement.scrollWidth'), path).toBe(options.viewport.width)
      // The two long pages take most of a minute and contain no other elements.
      if (!/protocol|cli/.test(path)) expect(await seriousFaults(page), path).toEqual([])
    }
    expect(new Set(asked)).toEqual(new Set([server.url.origin]))
    await context.close()
  })

  test('finds pages by the nouns of a question', async () => {
    const page = await browser.newPage()
    page.setDefaultTimeout(60_000)
    await page.goto(server.url.href)
    await page.getByRole('button', { name: 'Search' }).click()
    for (const [question, answer] of [
      ['how do I rotate a key', /rotat/i],
      ['what is a dead letter and why', /dead/i],
      ['where can I see the metrics of it', /metric/i],
    ] as const) {
      await page.getByRole('searchbox').fill(question)
      await expect.poll(() => page.getByRole('option').first().textContent(), { message: question }).toMatch(answer)
    }
    await page.close()
  })

  test('finds a word of a page and opens the page', async () => {
    const page = await browser.newPage()
    page.setDefaultTimeout(60_000)
    await page.goto(server.url.href)
    await page.getByRole('button', { name: 'Search' }).click()
    await page.getByRole('searchbox').fill('out_of_sequence')
    await page.getByRole('option', { name: 'Protocol' }).or(page.getByRole('option')).first().click()
    await page.getByRole('heading', { level: 1 }).waitFor()
    expect(page.url()).not.toBe(server.url.href)
    await page.close()
  })
})
