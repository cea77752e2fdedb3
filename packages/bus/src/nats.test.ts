/** Against the real server: Debian's `nats-server`. */
import { connect } from '@nats-io/transport-node'
import { expect, test } from 'vitest'
import { busConformance } from './conformance.ts'
import { GatheredBus } from './gathered-bus.ts'
import { type NatsOptions, natsTopicOf, natsWire } from './nats.ts'
import { isNatsHere, NatsServer } from './testing-nats.ts'

const CLUSTER = 'c0'.repeat(16)
const isMissing = !isNatsHere && process.env.CI !== 'true'

if (isMissing) test.skip('a bus over NATS: there is no nats-server here')
else {
  busConformance('nats', async () => {
    const server = await NatsServer.start()
    const teller = await connect({ servers: new URL(server.url).host, user: 'peer', pass: 'secret' })
    return {
      join: (shard) => new GatheredBus({ shard, open: natsWire({ urls: [server.url], cluster: CLUSTER }) }),
      say: async (topic, bytes) => {
        teller.publish(topic, bytes)
        await teller.flush()
      },
      topicOf: natsTopicOf(CLUSTER),
      cut: async () => {
        await server.stop()
        await server.startAgain()
      },
      end: async () => {
        await teller.close()
        await server.stop()
      },
    }
  })

  test.each<[string, (url: URL) => Partial<NatsOptions>]>([
    ['a wrong password', (url) => ({ urls: [url.href.replace('secret', 'wrong')] })],
    ['a server without TLS where it is asked for', (url) => ({ urls: [url.href.replace('nats:', 'tls:')] })],
    ['nobody listens', () => ({ urls: ['nats://127.0.0.1:1'] })],
  ])('%s is told once, without the address or the password', async (_, wrong) => {
    const its = await NatsServer.start()
    const told: string[] = []
    const { promise, resolve } = Promise.withResolvers<void>()
    const bus = new GatheredBus({
      shard: 'f'.repeat(32) as never,
      open: natsWire({ cluster: CLUSTER, urls: [its.url], ...wrong(new URL(its.url)) }),
      down: ({ code, message }) => {
        told.push(`${code}: ${message}`)
        resolve()
      },
    })
    await promise
    expect(told).toEqual([expect.stringMatching(/^bus_away: NATS is not available \(\w+\)\.$/)])
    expect(bus.isUp).toBe(false)
    await bus.close()
    await its.stop()
  })
}
