/** Tests the responses at `/demo`, and the origins that may connect. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { World } from './world.ts'

let on: World
let off: World
beforeAll(async () => {
  on = await World.open({ DEMO: 'on', AUTHORITIES: 'broker.example' })
  off = await World.open()
})
afterAll(async () => {
  await on[Symbol.asyncDispose]()
  await off[Symbol.asyncDispose]()
})

const get = (path: string, headers: Record<string, string> = {}, method = 'GET') =>
  fetch(on.broker.httpUrl + path, { headers, method, redirect: 'manual' })

/** Returns the refusal of an upgrade with this origin, or null. */
async function refusalOf(world: World, origin: string, host = world.broker.authority): Promise<string | null> {
  const headers = { Host: host, Origin: origin, Upgrade: 'websocket', 'Sec-WebSocket-Protocol': 'sealpost.v1' }
  const response = await fetch(`${world.broker.httpUrl}/v1/ws`, { headers })
  const { code } = (await response.json()) as { code: string }
  return code === 'origin_not_allowed' ? code : null
}

test('the page is served after a redirect without the slash, and revalidated on each request', async () => {
  const bare = await get('/demo')
  expect([bare.status, bare.headers.get('location')]).toEqual([308, '/demo/'])
  const page = await get('/demo/')
  const etag = page.headers.get('etag')!
  expect(page.headers.get('cache-control')).toBe('no-cache')
  expect((await get('/demo/', { 'If-None-Match': etag })).status).toBe(304)
  expect((await get('/demo/', { 'If-None-Match': '"another"' })).status).toBe(200)
})

test('assets are immutable, and compressed if the client supports it', async () => {
  const html = await (await get('/demo/')).text()
  const script = /src="(\/demo\/[^"]+\.js)"/.exec(html)![1]!
  const packed = await get(script, { 'Accept-Encoding': 'gzip' })
  expect(packed.headers.get('cache-control')).toBe('public, max-age=31536000, immutable')
  expect(packed.headers.get('content-type')).toMatch(/^text\/javascript/)
  expect(packed.headers.get('content-encoding')).toBe('gzip')
  const plain = await get(script, { 'Accept-Encoding': 'identity' })
  expect(plain.headers.get('content-encoding')).toBeNull()
  expect(await plain.text()).toBe(await packed.text())
})

test('the page contains no inline code and no foreign resources, and its policy forbids both', async () => {
  const page = await get('/demo/')
  const policy = page.headers.get('content-security-policy')!
  expect(policy).toContain("default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'")
  expect(policy).not.toMatch(/unsafe-inline|'unsafe-eval'|https?:|\*/)
  const html = await page.text()
  expect(html).not.toMatch(/<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=/)
  for (const [, address] of html.matchAll(/\b(?:src|href)="([^"]*)"/g)) expect(address).toMatch(/^\/demo\//)
})

test.each([
  ['an absent part', 'GET', '/demo/absent.js', 404],
  ['a part outside of it', 'GET', '/demo/../package.json', 404],
  ['another method', 'POST', '/demo/', 405],
])('%s is refused', async (_, method, path, status) => {
  expect((await get(path, {}, method)).status).toBe(status)
})

test('the demo is off by default', async () => {
  expect((await fetch(`${off.broker.httpUrl}/demo/`)).status).toBe(404)
  expect(await refusalOf(off, off.broker.httpUrl)).toBe('origin_not_allowed')
})

describe('pages that may connect', () => {
  const port = () => on.broker.port
  test.each([
    ['its own', () => `http://127.0.0.1:${port()}`, null],
    ['of another scheme, which the authority does not tell from its own', () => `https://127.0.0.1:${port()}`, null],
    ['of another name of it', () => `http://localhost:${port()}`, 'origin_not_allowed'],
    ['of another port', () => `http://127.0.0.1:${port() + 1}`, 'origin_not_allowed'],
    ['of a stranger', () => 'https://evil.example', 'origin_not_allowed'],
    ['of none', () => 'null', 'origin_not_allowed'],
    ['of another kind', () => `ftp://127.0.0.1:${port()}`, 'origin_not_allowed'],
    ['with a user', () => `http://ada@127.0.0.1:${port()}`, 'origin_not_allowed'],
    ['with a path', () => `http://127.0.0.1:${port()}/demo`, 'origin_not_allowed'],
  ])('%s', async (_, origin, refusal) => {
    expect(await refusalOf(on, origin())).toBe(refusal)
  })

  test.each([
    ['https://broker.example', null],
    ['http://broker.example', 'origin_not_allowed'],
    ['https://other.example', 'origin_not_allowed'],
  ])('behind a proxy that ends TLS: %s', async (origin, refusal) => {
    expect(await refusalOf(on, origin, 'broker.example')).toBe(refusal)
  })
})
