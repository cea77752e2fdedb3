/** Tests HTTP during a database outage, which differs from a refusal and duplicates nothing. */
import { rm } from 'node:fs/promises'
import { startEmbedded } from '@sealpost/embedded-pg'
import { expect, test } from 'vitest'
import { HttpPeer } from './http.ts'
import { until } from './process.ts'
import { envelopeTo } from './wire.ts'
import { temporaryFolder, World } from './world.ts'

test('during a database outage, a send gets `unavailable`, and all other clients are told to retry', async () => {
  const dataDir = await temporaryFolder()
  let postgres = await startEmbedded({ dataDir })
  try {
    await using world = await World.open({}, { url: postgres.url, drop: async () => {} })
    const [from, to] = await world.enrolMany(2)
    const [sender, stranger] = [await HttpPeer.enter(from), await HttpPeer.enter(from)]
    const [before, item] = [envelopeTo(to), envelopeTo(to)]
    expect((await sender.send(before)).body.results).toMatchObject([{ status: 'stored' }])
    await postgres.kill()
    const during = await sender.send(item)
    expect(during).toMatchObject({ status: 200, body: { results: [{ status: 'refused', code: 'unavailable' }] } })
    const later = await stranger.inbox('waitSeconds=0')
    expect(later).toMatchObject({ status: 503, body: { code: 'try_later' } })
    expect(later.headers.get('retry-after')).toBe('1')
    postgres = await startEmbedded({ dataDir, port: postgres.port })
    await until('it is stored', async () => {
      const { status, body } = await sender.send(before, item)
      return status === 200 && body.results.every((result: { status: string }) => result.status !== 'refused')
    })
    expect(await world.count('message_queue')).toBe(2)
  } finally {
    await postgres.stop()
    await rm(dataDir, { recursive: true, force: true })
  }
})
