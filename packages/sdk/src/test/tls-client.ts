/**
 * Runs a peer, for tests, in a program whose environment sets the trusted authorities. Uses every network path, and
 * prints each outcome as a line of JSON. Arguments: the place (JSON, with a key file) and an invite.
 */
import { generateIdentity } from '@sealpost/identity'
import { readKeyFile } from '@sealpost/identity/key-file'
import type { MeshId, PeerKey } from '@sealpost/std'
import { Attachments } from '../attachments/attachments.ts'
import { connect, openPeer } from '../client.ts'
import { join } from '../connection/join.ts'
import { setSpace } from '../state/index.ts'

const [placeText, keyFile, invite] = process.argv.slice(2)
const { contents } = await readKeyFile(keyFile!)
if (contents.kind !== 'peer') throw new Error('it is no key file of a peer')
const { identity } = contents
const place = { ...(JSON.parse(placeText!) as { url: string; brokerKey: PeerKey; meshId: MeshId }), identity }

async function tell(what: string, act: () => Promise<unknown>): Promise<void> {
  const outcome = await act().catch((error) => error.code)
  process.stdout.write(`${JSON.stringify([what, outcome])}\n`)
}

await tell('join', async () => (await join({ invite: invite!, identity: generateIdentity() })).url)
await tell('mail', async () => {
  await using peer = await connect(place)
  const heard = new Promise((resolve) => peer.onMessage((message) => resolve(message.text())))
  await peer.send(peer.key, 'sealed')
  return await heard
})
await tell('offline', () => {
  const { promise, resolve } = Promise.withResolvers()
  const onEvent = (event: { type: string; code?: string }) => resolve(event.code ?? event.type)
  const opened = openPeer({ ...place, onEvent })
  return promise.finally(async () => (await opened).close())
})
await tell('file', async () => {
  await using files = new Attachments(place)
  const sent = await files.upload(new Blob(['a file']), { name: 'a', to: identity.signing.publicKey })
  let text = ''
  for await (const bytes of files.download(sent)) text += new TextDecoder().decode(bytes)
  return text
})
await tell('space', async () => (await setSpace(place)).epoch)
