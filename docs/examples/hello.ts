import { connect } from '@sealpost/sdk'
import { readKeyFile } from '@sealpost/sdk/key-file'

async function peer(name: string) {
  const { contents } = await readKeyFile(`.sealpost/${name}.json`)
  if (contents.kind !== 'peer' || !contents.enrolment) throw new Error('run `bun scripts/dev.ts` first')
  return connect({ url: `ws://${contents.enrolment.authority}`, identity: contents.identity, ...contents.enrolment })
}

const [alice, bob] = await Promise.all([peer('alice'), peer('bob')])
await alice.send(bob.key, 'Are you there?') // resolves when Postgres has synced it to disk
for await (const message of bob) {
  console.log(`${message.sender === alice.key ? 'alice' : 'another peer'}: ${message.text()}`)
  message.settle() // deletes it from the queue; an unsettled message is redelivered
  break
}
await Promise.all([alice.close(), bob.close()])
