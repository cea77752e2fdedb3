import { expect, test } from 'vitest'
import { isExposed, normalizeAuthority, portOf } from '../index.ts'

test.each([
  ['wss://Broker.Example/v1/ws', 'broker.example:443'],
  ['ws://broker.example', 'broker.example:80'],
  ['https://broker.example:8443', 'broker.example:8443'],
  ['HTTP://broker.example:443', 'broker.example:443'],
  ['broker.example', 'broker.example:443'],
  ['localhost:7070', 'localhost:7070'],
  ['127.0.0.1:7070', '127.0.0.1:7070'],
  ['[::1]:7070', '[::1]:7070'],
  ['wss://[2001:DB8:0:0::1]', '[2001:db8::1]:443'],
  ['wss://bücher.example', 'xn--bcher-kva.example:443'],
])('%s is spelled %s', (address, authority) => {
  expect(normalizeAuthority(address)).toBe(authority)
  expect(normalizeAuthority(authority)).toBe(authority)
})

test('a bare host gets the port of the scheme it is read with', () => {
  expect(normalizeAuthority('broker.example', 'ws')).toBe('broker.example:80')
})

test.each(['', 'ftp://broker.example', 'wss://', 'broker.example:70000', 'wss://a b', '::1'])(
  '%s is refused',
  (address) => {
    expect(() => normalizeAuthority(address)).toThrow(expect.objectContaining({ code: 'authority_malformed' }))
  },
)

test('an address with a password is refused and not repeated', () => {
  expect(() => normalizeAuthority('wss://user:hunter2@broker.example')).toThrow(/^(?!.*hunter2)/)
})

test.each([
  ['ws://192.168.1.20:7450', true],
  ['http://broker.example/v1/ws', true],
  ['WS://broker.example', true],
  ['ws://0.0.0.0:7450', true],
  ['ws://localhost.example', true],
  ['ws://127.0.0.1.example', true],
  ['ws://[fe80::1]:7450', true],
  ['wss://broker.example', false],
  ['https://192.168.1.20', false],
  ['ws://localhost:7450', false],
  ['ws://Broker.LOCALHOST', false],
  ['ws://127.3.2.1:7450', false],
  ['ws://[::1]:7450', false],
])('%s is exposed: %s', (address, isSo) => {
  expect(isExposed(address)).toBe(isSo)
})

test.each([
  ['ws://127.0.0.1:7450', 7450],
  ['wss://broker.example:443/v1/ws', 443],
  ['ws://[::1]:80', 80],
])('the port of %s is %i', (address, port) => {
  expect(portOf(address)).toBe(port)
})
