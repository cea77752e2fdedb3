/**
 * Runs a peer without a store, for end-to-end tests. The program prints each text that it receives, and exits
 * immediately when it receives a certain text.
 *     bun fragile-peer.ts PLACE FATAL-TEXT        PLACE is JSON: url, brokerKey, meshId, and the two secret keys
 */
import { writeSync } from 'node:fs'
import { boxKeysFromSecret, ready, signingKeysFromSeed } from '@sealpost/identity'
import { fromHex } from '@sealpost/std'
import { connect } from '../client.ts'

const [place, fatalText] = process.argv.slice(2) as [string, string]
const { signing, box, ...rest } = JSON.parse(place)
await ready()
const identity = { signing: signingKeysFromSeed(fromHex(signing)), box: boxKeysFromSecret(fromHex(box), 1) }
const peer = await connect({ ...rest, identity })
peer.onMessage((message) => {
  const text = message.text()
  writeSync(1, `${text}\n`)
  if (text === fatalText) process.kill(process.pid, 'SIGKILL')
})
