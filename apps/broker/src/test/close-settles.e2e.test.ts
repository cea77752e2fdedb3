import { connect, type Peer } from '@sealpost/sdk'
import { expect, test } from 'vitest'
import { World } from './world.ts'

const CLIENTS = 25
/** Serves each peer where it connects, so that its next session can be at another broker. */
const ANYWHERE = { PLACEMENT: 'any', REBALANCE: 'off' }

test('messages settled before close() are not delivered again, whichever broker the peer reconnects to', async () => {
  await using world = await World.open(ANYWHERE)
  const second = await world.secondShard(ANYWHERE)
  const sender = await connect(await world.enrol())
  const handed: string[] = []
  const next = (peer: Peer) =>
    new Promise<void>((resolve) => {
      peer.onMessage((message) => {
        handed.push(message.text())
        resolve()
      })
    })
  for (let i = 0; i < CLIENTS; i++) {
    const place = await world.enrol()
    await sender.send(place.identity.signing.publicKey, 'first')
    const life = await connect(place)
    await next(life)
    await life.close()
    const later = await connect({ ...place, url: second.url })
    await sender.send(later.key, 'second')
    await next(later)
    await later.close()
  }
  expect(handed).toEqual(Array.from({ length: CLIENTS }, () => ['first', 'second']).flat())
  await sender.close()
})
