/** Tests the bus against the real server, from Debian's package `nats-server`. */
import { connect } from '@nats-io/transport-node'
import { expect, test } from 'vitest'
import { BatchingBus } from './bus.ts'
import { type NatsOptions, natsTopicOf, natsTransport } from './nats.ts'
import { busConformance } from './test/conformance.ts'
import { hasNats, NatsServer } from './test/nats-server.ts'

const CLUSTER = 'c0'.repeat(16)
const isMissing = !hasNats && process.env.CI !== 'true'

if (isMissing) test.skip('a bus over NATS: there is no nats-server here')
else {
  busConformance('nats', async () => {
    const server = await NatsServer.start()
    const publisher = await connect({ servers: new URL(server.url).host, user: 'peer', pass: 'secret' })
    return {
      join: (shard) => new BatchingBus({ shard, open: natsTransport({ urls: [server.url], cluster: CLUSTER }) }),
      send: async (topic, bytes) => {
        publisher.publish(topic, bytes)
        await publisher.flush()
      },
      topicOf: natsTopicOf(CLUSTER),
      disconnect: async () => {
        await server.stop()
        await server.restart()
      },
      end: async () => {
        await publisher.close()
        await server.stop()
      },
    }
  })

  test.each<[string, (url: URL) => Partial<NatsOptions>]>([
    ['a wrong password', (url) => ({ urls: [url.href.replace('secret', 'wrong')] })],
    ['a server without the requested TLS', (url) => ({ urls: [url.href.replace('nats:', 'tls:')] })],
    ['no server', () => ({ urls: ['nats://127.0.0.1:1'] })],
  ])('%s is reported once, without the address or the password', async (_, wrong) => {
    const server = await NatsServer.start()
    const reported: string[] = []
    const { promise, resolve } = Promise.withResolvers<void>()
    const bus = new BatchingBus({
      shard: 'f'.repeat(32) as never,
      open: natsTransport({ cluster: CLUSTER, urls: [server.url], ...wrong(new URL(server.url)) }),
      down: ({ code, message }) => {
        reported.push(`${code}: ${message}`)
        resolve()
      },
    })
    await promise
    expect(reported).toEqual([expect.stringMatching(/^bus_down: NATS is not available \(\w+\)\.$/)])
    expect(bus.isUp).toBe(false)
    await bus.close()
    await server.stop()
  })

  test('a send in flight fails when its server ends, so that the next connection repeats it', async () => {
    const server = await NatsServer.start()
    const up = Promise.withResolvers<void>()
    const transport = natsTransport({ cluster: CLUSTER, urls: [server.url] })({
      onUp: up.resolve,
      onDown: () => undefined,
      onPacket: () => undefined,
      onFollowing: () => undefined,
    })
    await up.promise
    await server.pause()
    const sent = transport.send([{ topic: transport.topicOf(null), bytes: new Uint8Array(1) }])
    await server.stop()
    await expect(sent).rejects.toMatchObject({ code: 'bus_down' })
    await transport.close()
  })
}
