/** Runs the tests in a browser, on the unbundled package. */
import { connect, openPeer } from '@sealpost/sdk'
import { openIndexedDbStore } from '@sealpost/sdk/indexeddb-store'
import { close, equal, member, type Outcome, runTests, type Surroundings, taken } from './peers.ts'

const BROWSER = {
  'a store in the browser outlives the peer': async (given: Surroundings) => {
    const [mine, theirs] = [await member(given), await member(given)]
    const offline = await openPeer({ ...mine, url: 'ws://127.0.0.1:9', store: await openIndexedDbStore('peer') })
    await offline.enqueue(theirs.identity.signing.publicKey, 'from the browser')
    await offline.close()
    const reader = await connect(theirs)
    const heard = taken(reader, 1)
    const online = await connect({ ...mine, store: await openIndexedDbStore('peer') })
    equal((await heard).join(), 'from the browser')
    await close(online, reader)
  },
}

export const run = (invite: string): Promise<Outcome[]> => runTests({ invite }, BROWSER)
