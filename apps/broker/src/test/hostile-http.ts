/** H67 to H77: HTTP requests. */
import { FRAME_BYTES_MAX } from '@sealpost/protocol'
import { type Act, type Arena, hostileRows, http, MARK, statusOf } from './hostile.ts'
import { HttpPeer, tokenInMesh } from './http.ts'
import { rawHttp } from './wire.ts'

const get = (path: string, ...headers: string[]) => http(`GET ${path} HTTP/1.1`, 'Host: HOST', ...headers)
const method = (name: string, path: string, ...headers: string[]) =>
  http(`${name} ${path} HTTP/1.1`, 'Host: HOST', 'Content-Length: 0', ...headers)

/** Polls with a modified token. */
const withToken = (headersOf: (token: string, arena: Arena) => string[] | Promise<string[]>): Act =>
  withPeer(async ({ token }, arena) => get('/v1/inbox?waitSeconds=0', ...(await headersOf(token, arena)))(arena))

function withPeer(act: (peer: HttpPeer, arena: Arena) => Promise<string>): Act {
  return async (arena) => act(await HttpPeer.enter(await arena.world.enrol()), arena)
}

const postRaw = (headers: readonly string[], body: string) =>
  withPeer(async ({ token }, { world }) => {
    const head = ['POST /v1/send HTTP/1.1', `Host: ${world.broker.authority}`, `Authorization: Bearer ${token}`]
    const request = [...head, 'Content-Type: application/json', 'Connection: close', ...headers, '', body].join('\r\n')
    return statusOf(await rawHttp(world.broker.port, request))
  })

/** Returns whether a foreign page could read the response. */
const asPage =
  (request: string, ...headers: string[]): Act =>
  async ({ world }) => {
    const lines = [request, `Host: ${world.broker.authority}`, ...headers, '', '']
    const answer = await rawHttp(world.broker.port, lines.join('\r\n'))
    const isOpen = [...answer.headers.keys()].some((name) => name.startsWith('access-control'))
    return `${statusOf(answer)}${isOpen ? ', open to pages' : ''}`
  }

const overLimit = FRAME_BYTES_MAX + 4096
const INVALID = '401 token_invalid'

export const httpRows = hostileRows([
  ['H67', 'no token', withToken(() => []), INVALID],
  ['H67', 'a token in the query', withPeer(({ token }, arena) => get(`/v1/inbox?access_token=${token}`)(arena)), INVALID],
  ['H67', 'another scheme', withToken((token) => [`Authorization: Basic ${token}`]), INVALID],
  ['H67', 'the scheme in lower case', withToken((token) => [`Authorization: bearer ${token}`]), INVALID],
  ['H67', 'two tokens in one header', withToken((token) => [`Authorization: Bearer ${token}, Bearer ${token}`]), INVALID],
  ['H67', 'two headers', withToken((token) => Array(2).fill(`Authorization: Bearer ${token}`)), INVALID],
  ['H67', 'two spaces', withToken((token) => [`Authorization: Bearer  ${token}`]), INVALID],
  ['H67', 'a character after the token', withToken((token) => [`Authorization: Bearer ${token}x`]), INVALID],
  ['H67', 'another secret', withToken((token) => [`Authorization: Bearer ${token.slice(0, -4)}AAAA`]), INVALID],
  ['H67', 'a cookie', withToken((token) => [`Cookie: token=${token}`]), INVALID],
  ['H68', 'a token in another mesh', withToken(async (token, { world }) => [`Authorization: Bearer ${tokenInMesh(token, await world.mesh())}`]), INVALID],
  ['H70', 'a Content-Length above the limit', postRaw([`Content-Length: ${overLimit}`], ''), '413'],
  ['H70', 'a chunked body above the limit', postRaw(['Transfer-Encoding: chunked'], `${overLimit.toString(16)}\r\n${'a'.repeat(overLimit)}\r\n0\r\n\r\n`), '413'],
  ['H72', 'an absolute URL with another host name', http('GET http://evil.example/v1/inbox HTTP/1.1', 'Host: evil.example'), '421 wrong_authority'],
  ['H72', 'an absolute URL of ours with another Host header', http('GET http://HOST/v1/inbox HTTP/1.1', 'Host: evil.example'), '421 wrong_authority'],
  ['H73', 'an encoded slash', get('/v1%2finbox'), '404 not_found'],
  ['H73', 'dot segments', get('/v1/../metrics'), '404 not_found'],
  ['H73', 'encoded dot segments', get('/v1/%2e%2e/metrics'), '404 not_found'],
  ['H73', 'capitals', get('/V1/inbox'), '404 not_found'],
  ['H73', 'encoded twice', get('/v1/%2569nbox'), '404 not_found'],
  ['H73', 'two slashes', get('//v1/ws'), '404 not_found'],
  ['H73', 'an extra slash', get('/v1/ws/'), '404 not_found'],
  ['H73', 'a broken encoding', get(`/%${MARK}`), '404 not_found'],
  ['H74', 'a cross-origin preflight', asPage('OPTIONS /v1/send HTTP/1.1', 'Origin: https://evil.example', 'Access-Control-Request-Method: POST'), '403 origin_not_allowed'],
  ['H74', 'a cross-origin GET with a cookie', asPage('GET /v1/inbox HTTP/1.1', 'Origin: https://evil.example', `Cookie: ${MARK}`), '403 origin_not_allowed'],
  ['H74', 'a cross-origin request for the version', asPage('GET /version HTTP/1.1', 'Origin: https://evil.example'), '200'],
  ['H75', 'a method in a header', method('POST', '/v1/inbox', 'X-HTTP-Method-Override: GET'), '405 method_not_allowed'],
  ['H75', 'TRACE', method('TRACE', '/v1/send'), '405 method_not_allowed'],
  ['H75', 'CONNECT', method('CONNECT', '/v1/send'), '405 method_not_allowed'],
  ['H77', 'metrics from the public port', get('/metrics'), '404 not_found'],
]) // biome-ignore format: a table
