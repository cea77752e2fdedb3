/** Tests the network behaviour on which fault tests rely. */
import { once } from 'node:events'
import { createServer, type Socket, connect as tcpConnect } from 'node:net'
import { expect, test } from 'vitest'
import { TcpProxy } from './proxy.ts'

/** Starts an echo server behind a proxy. */
async function openEcho() {
  const served: Socket[] = []
  const heard: string[] = []
  const server = createServer((socket) => {
    served.push(socket)
    socket.on('data', (piece) => {
      heard.push(String(piece))
      socket.write(piece)
    })
    socket.on('error', () => {})
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const proxy = await TcpProxy.open((server.address() as { port: number }).port)
  return {
    proxy,
    heard,
    served,
    [Symbol.asyncDispose]: async () => {
      await proxy.close()
      for (const socket of served) socket.destroy()
      server.close()
    },
  }
}

function dial(port: number) {
  const socket = tcpConnect({ port, host: '127.0.0.1' })
  const pieces: string[] = []
  socket.on('data', (piece) => pieces.push(String(piece)))
  socket.on('error', () => {})
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()))
  return { socket, pieces, closed, got: (text: string) => expect.poll(() => pieces.join('')).toContain(text) }
}

test('bytes pass in both directions, and an end is passed on', async () => {
  await using echo = await openEcho()
  const client = dial(echo.proxy.port)
  client.socket.write('hello')
  await client.got('hello')
  echo.served[0]!.destroy()
  await client.closed
})

test('a slow network keeps the order of the chunks', async () => {
  await using echo = await openEcho()
  const delays = [60, 0, 30, 0, 0, 0, 0, 0, 0, 0]
  echo.proxy.set({ is: 'slow', delayMs: () => delays.shift() ?? 0 })
  const client = dial(echo.proxy.port)
  for (const piece of ['a', 'b', 'c', 'd']) {
    client.socket.write(piece)
    await new Promise((resolve) => setImmediate(resolve))
  }
  await client.got('abcd')
})

test('a cut resets open connections; a network that is down refuses new ones', async () => {
  await using echo = await openEcho()
  const client = dial(echo.proxy.port)
  client.socket.write('hello')
  await client.got('hello')
  echo.proxy.set({ is: 'down' })
  echo.proxy.cut()
  await client.closed
  await dial(echo.proxy.port).closed
  echo.proxy.set({ is: 'up' })
  const later = dial(echo.proxy.port)
  later.socket.write('again')
  await later.got('again')
})

test('a silenced connection passes nothing more, not even its end, and is not served again', async () => {
  await using echo = await openEcho()
  const client = dial(echo.proxy.port)
  client.socket.write('before ')
  await client.got('before')
  echo.proxy.set({ is: 'silent' })
  client.socket.write('lost ')
  echo.proxy.set({ is: 'up' })
  client.socket.write('after ')
  const other = dial(echo.proxy.port)
  other.socket.write('other')
  await other.got('other')
  expect(echo.heard.join('')).toBe('before other')
  client.socket.destroy()
  await client.closed
  expect(echo.served[0]!.destroyed).toBe(false)
})

test('a reply is lost after its request was received', async () => {
  await using echo = await openEcho()
  const client = dial(echo.proxy.port)
  client.socket.write('small ')
  await client.got('small')
  const lost = echo.proxy.loseReply(10)
  client.socket.write('tiny ')
  await client.got('tiny')
  client.socket.write('a request of some size')
  await lost
  await client.closed
  expect(echo.heard.join('')).toContain('a request of some size')
  expect(client.pieces.join('')).not.toContain('size')
})

test('unread bytes stay at the server', async () => {
  await using echo = await openEcho()
  const client = dial(echo.proxy.port)
  client.socket.write('hello')
  await client.got('hello')
  echo.proxy.set({ is: 'never reading' })
  const chunk = Buffer.alloc(1024 * 1024)
  const server = echo.served[0]!
  let written = 0
  while (server.write(chunk) && written < 100) written += 1
  expect(server.writableLength).toBeGreaterThan(0)
  expect(client.pieces.join('')).toBe('hello')
})
