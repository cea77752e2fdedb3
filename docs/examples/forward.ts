import { setTimeout as delay } from 'node:timers/promises'
import { connect } from '@sealpost/sdk'
import { openFileStore } from '@sealpost/sdk/file-store'
import { forwardSecrecy, ratchetedPeers } from '@sealpost/sdk/forward'
import { readKeyFile } from '@sealpost/sdk/key-file'

async function peer(name: string) {
  const { contents } = await readKeyFile(`.sealpost/${name}.json`)
  if (contents.kind !== 'peer' || !contents.enrolment) throw new Error('run `bun scripts/dev.ts` first')
  const published = Promise.withResolvers<void>()
  const connected = await connect({
    ...{ url: `ws://${contents.enrolment.authority}`, identity: contents.identity, ...contents.enrolment },
    store: await openFileStore(`.sealpost/${name}.store`), // it keeps the ratchets
    secrecy: forwardSecrecy(),
    onEvent: ({ type }) => type === 'prekeys_published' && published.resolve(),
  })
  return { connected, published: published.promise }
}

const [{ connected: alice }, { connected: bob, published }] = await Promise.all([peer('alice'), peer('bob')])
// Without Bob's prekeys, his box key would seal the first message. An earlier run may have published them.
if (ratchetedPeers(alice).length === 0) await Promise.race([published, delay(5_000, undefined, { ref: false })])
const settled = new Promise<void>((resolve) => {
  bob.onMessage((message) => {
    console.log(message.text()) // Only the two of us.
    resolve()
  })
})
await alice.send(bob.key, 'Only the two of us.')
await settled // from now on, a thief of all keys can't open the message
const isSecret = ratchetedPeers(bob).some((known) => known.peer === alice.key)
console.log(`forward secrecy: ${isSecret}`) // forward secrecy: true
await Promise.all([alice.close(), bob.close()])
