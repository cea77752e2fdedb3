import { connect } from '@sealpost/sdk'
import { groupsOf } from '@sealpost/sdk/groups'
import { readKeyFile } from '@sealpost/sdk/key-file'
import { openState, setSpace } from '@sealpost/sdk/state'

async function place(name: string) {
  const { contents } = await readKeyFile(`.sealpost/${name}.json`)
  if (contents.kind !== 'peer' || !contents.enrolment) throw new Error('run `bun scripts/dev.ts` first')
  return { url: `ws://${contents.enrolment.authority}`, identity: contents.identity, ...contents.enrolment }
}

const [alice, bob] = await Promise.all([place('alice'), place('bob')])
const peer = await connect(alice)
const crew = await groupsOf(peer).create('crew', [bob.identity.signing.publicKey])
await setSpace({ ...alice, group: crew.id }, { historyFor: 'all' }) // from now on, this group has state and history

const hers = await openState({ ...alice, group: crew.id }) // the first member to open it creates the keys for both
const his = await openState({ ...bob, group: crew.id })
const { seq, atUs } = await hers.set('topic', 'tea')
const topic = await his.get('topic')
await his.set('topic', 'coffee', { ifRevision: topic!.revision }) // fails if the value has changed since

for await (const entry of hers.replay({ at: { us: atUs! } })) console.log(`then: ${entry.key} is ${entry.text()}`)
for await (const change of hers.watch({ after: seq! })) {
  if (change.type === 'set') console.log(`since: ${change.key} is ${change.text()}`)
  break
}
await Promise.all([hers.close(), his.close(), crew.delete()])
await peer.close()
