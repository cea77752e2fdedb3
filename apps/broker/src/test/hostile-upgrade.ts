/** H01 to H17: clients before their upgrade, and connections that have not proven a key. */

import { type Arena, early, hostileRows, http, MARK, ORIGIN, upgrade, upgradeLine, upgradeWithout } from './hostile.ts'
import { envelopeTo, sendFrame } from './wire.ts'

const request = (...headers: string[]) => http('GET /livez HTTP/1.1', ...headers)

export const upgradeRows = hostileRows([
  ['H01', 'an Origin that is not listed', upgrade('Origin: https://evil.example'), '403 origin_not_allowed'],
  ['H01', 'our Origin over plain HTTP', upgrade('Origin: http://console.example'), '403 origin_not_allowed'],
  ['H02', 'Origin: null', upgrade('Origin: null'), '403 origin_not_allowed'],
  ['H03', 'two Origins, ours first', upgrade(`Origin: ${ORIGIN}`, 'Origin: https://evil.example'), '403 origin_not_allowed'],
  ['H03', 'two Origins, both ours', upgrade(`Origin: ${ORIGIN}`, `Origin: ${ORIGIN}`), '403 origin_not_allowed'],
  ['H04', 'an Origin that begins like ours', upgrade(`Origin: ${ORIGIN}.evil.example`), '403 origin_not_allowed'],
  ['H04', 'an Origin that ends like ours', upgrade('Origin: https://evil-console.example'), '403 origin_not_allowed'],
  ['H05', 'a host name that is not ours (DNS rebinding)', upgrade('Host: evil.example'), '421 wrong_authority'],
  ['H05', 'our host name with another port', upgrade('Host: localhost:1'), '421 wrong_authority'],
  ['H06', 'a token in the query', upgradeLine(`GET /v1/ws?token=${MARK} HTTP/1.1`), '400 credentials_in_upgrade'],
  ['H06', 'a token in a cookie', upgrade(`Cookie: token=${MARK}`), '400 credentials_in_upgrade'],
  ['H07', 'an older WebSocket version', upgradeWithout('Sec-WebSocket-Version', 'Sec-WebSocket-Version: 12'), '426'],
  ['H08', 'no key', upgradeWithout('Sec-WebSocket-Key'), '400 bad_upgrade'],
  ['H08', 'a short key', upgradeWithout('Sec-WebSocket-Key', 'Sec-WebSocket-Key: AAAA'), '400 bad_upgrade'],
  ['H08', 'POST', upgradeLine('POST /v1/ws HTTP/1.1'), '400 bad_upgrade'],
  // Bun hides the HTTP version, so this harmless request is answered with a greeting.
  ['H09', 'HTTP/1.0 without a host', upgradeLine('GET /v1/ws HTTP/1.0', 'Host: -'), '400 bad_host'],
  ['H10', 'a body', upgrade('Content-Length: 5'), '400 bad_upgrade'],
  ['H10', 'an empty body', upgrade('Content-Length: 0'), '400 bad_upgrade'],
  ['H10', 'a body in chunks', upgrade('Transfer-Encoding: chunked'), '400 bad_upgrade'],
  ['H11', 'no subprotocol', upgrade('Sec-WebSocket-Protocol: -'), '400 no_common_subprotocol'],
  ['H11', 'a foreign subprotocol', upgrade('Sec-WebSocket-Protocol: evil'), '400 no_common_subprotocol'],
  ['H11', 'a foreign subprotocol before ours', upgrade('Sec-WebSocket-Protocol: evil, sealpost.v1'), '101 sealpost.v1'],
  ['H12', '250 headers', upgrade(...Array.from({ length: 250 }, (_, i) => `X-${MARK}-${i}: 1`)), '431'],
  ['H12', 'a header of 64 KiB', upgrade(`X-Long: ${MARK.repeat(6554)}`), '431'],
  ['H12', 'a URL of 20 KiB', upgradeLine(`GET /v1/${MARK.repeat(2048)} HTTP/1.1`), '431'],
  ['H13', 'both Content-Length and chunked encoding', request('Host: HOST', 'Content-Length: 5', 'Transfer-Encoding: chunked'), '400'],
  ['H13', 'two Content-Length headers', request('Host: HOST', 'Content-Length: 5', 'Content-Length: 6'), '400'],
  ['H13', 'a negative Content-Length', request('Host: HOST', 'Content-Length: -1'), '400'],
  ['H13', 'a header folded over two lines', request('Host: HOST', 'X-Long: a', ` ${MARK}`), '400'],
  ['H13', 'a zero byte in a header', request('Host: HOST', `X-Zero: a\0${MARK}`), '400'],
  ['H13', 'a bare line feed', request('Host: HOST\nX-More: 1'), '400'],
  ['H13', 'no host', request('X-More: 1'), '400'],
  ['H17', 'a frame before `auth`', early((client) => client.send({ type: 'ping', ref: 1 })), '4400 frame_unexpected'],
  ['H17', 'a `send` before `auth`', mailBeforeAuth, '4400 frame_unexpected'],
  ['H17', 'text on a binary connection before `auth`', early((client) => client.sendWire(MARK)), '1003 wrong_form'],
  ['H17', 'random bytes before `auth`', early((client) => client.sendWire(Uint8Array.of(255, 1, 2))), '4400 frame_malformed'],
]) // biome-ignore format: a table

async function mailBeforeAuth(arena: Arena): Promise<string> {
  const to = await arena.world.enrol()
  return early((client) => client.send(sendFrame(envelopeTo(to))))(arena)
}
