import { connect } from '@sealpost/sdk'
import { confirmationsOf } from '@sealpost/sdk/confirmations'
import { readKeyFile } from '@sealpost/sdk/key-file'
import { sentLogOf } from '@sealpost/sdk/sent'

async function peer(name: string) {
  const { contents } = await readKeyFile(`.sealpost/${name}.json`)
  if (contents.kind !== 'peer' || !contents.enrolment) throw new Error('run `bun scripts/dev.ts` first')
  return connect({ url: `ws://${contents.enrolment.authority}`, identity: contents.identity, ...contents.enrolment })
}

const [alice, bob] = await Promise.all([peer('alice'), peer('bob')])
const confirmations = confirmationsOf(bob) // bob signs what he does with messages
const sent = sentLogOf(alice)
const { envelopeId } = await sent.send(bob.key, 'Please pay.', { receipts: 'end', confirm: 'end' })
const [where] = await sent.askBroker([envelopeId!])
console.log(`recipient online: ${where!.presence!.isOnline}`) // recipient online: true
bob.onMessage((message) => console.log(message.text())) // Please pay.
const { state, isSigned } = await sent.wait(envelopeId!, 'confirmed', { timeoutMs: 60_000 })
console.log(`${state}, signed by the recipient: ${isSigned}`) // confirmed, signed by the recipient: true
await confirmations.stored()
await Promise.all([alice.close(), bob.close()])
