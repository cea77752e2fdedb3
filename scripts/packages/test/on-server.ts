/** Runs the tests on Node, Bun or Deno: `INVITE` and `FOLDER` in the environment. Prints the outcomes as JSON. */
import { mkdtemp, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import process from 'node:process'
import { connect, openPeer, SealpostError } from '@sealpost/sdk'
import { fileSource, saveAttachment } from '@sealpost/sdk/attachment-files'
import { Attachments } from '@sealpost/sdk/attachments'
import { openFileStore } from '@sealpost/sdk/file-store'
import { readKeyFile, writeKeyFile } from '@sealpost/sdk/key-file'
import { openSession } from '@sealpost/sdk/sessions'
import { close, equal, member, runTests, type Surroundings, taken } from './peers.ts'

const SERVER = {
  'a key file is written, locked and read': async (surroundings: Surroundings) => {
    const { identity } = await member(surroundings)
    const path = join(surroundings.folder!, 'peer.json')
    const contents = { kind: 'peer' as const, identity, formerBoxKeys: [], enrolment: null }
    await writeKeyFile(path, contents, { passphrase: 'correct horse' })
    const read = await readKeyFile(path, () => 'correct horse')
    equal(read.contents.kind === 'peer' && read.contents.identity.signing.publicKey, identity.signing.publicKey)
  },

  'a file store outlives the process': async (surroundings: Surroundings) => {
    const [mine, theirs] = [await member(surroundings), await member(surroundings)]
    const path = join(surroundings.folder!, 'peer.store')
    const offline = await openPeer({ ...mine, url: 'ws://127.0.0.1:9', store: await openFileStore(path) })
    const inUse = await openFileStore(path).catch((error: unknown) => error)
    equal(inUse instanceof SealpostError && inUse.code, 'store_in_use')
    await offline.enqueue(theirs.identity.signing.publicKey, 'from disk')
    await offline.close()
    const reader = await connect(theirs)
    const heard = taken(reader, 1)
    const online = await connect({ ...mine, store: await openFileStore(path) })
    equal((await heard).join(), 'from disk')
    await close(online, reader)
  },

  'a file goes from disk to disk': async (surroundings: Surroundings) => {
    const [mine, theirs] = [await member(surroundings), await member(surroundings)]
    const folder = await mkdtemp(join(surroundings.folder!, 'files-'))
    await writeFile(join(folder, 'plan.txt'), 'plan '.repeat(100_000))
    const [own, other] = [new Attachments(mine), new Attachments(theirs)]
    const source = await fileSource(join(folder, 'plan.txt'))
    const sent = await own.upload(source, { to: theirs.identity.signing.publicKey, name: 'plan.txt' })
    const saved = await saveAttachment(other, sent, { folder: join(folder, 'received') })
    equal(await readFile(saved, 'utf8'), 'plan '.repeat(100_000))
    await Promise.all([own.close(), other.close()])
  },

  'sessions of one member share its messages': async (surroundings: Surroundings) => {
    const [sender, { identity, ...place }] = [await connect(await member(surroundings)), await member(surroundings)]
    const folder = await mkdtemp(join(surroundings.folder!, 'profile-'))
    const open = (as: string) => openSession({ ...place, folder, member: { identity }, credit: 1, as })
    const sessions = await Promise.all(['a', 'b'].map(open))
    for (const session of sessions) session.onMessage((message) => message.reply(`${session.label} ${message.text()}`))
    const answer = await sender.request(identity.signing.publicKey, 'to one')
    equal(answer.user, identity.signing.publicKey)
    const [a, b] = await Promise.all(sessions.map(({ key, label }) => sender.request(key, label)))
    equal(`${a!.text()}, ${b!.text()}`, 'a a, b b')
    await close(sender, ...sessions)
  },
}

const { socketOfTest } = globalThis as { socketOfTest?: Surroundings['webSocket'] }
const given: Surroundings = {
  invite: process.env.INVITE!,
  folder: process.env.FOLDER!,
  ...(socketOfTest && { webSocket: socketOfTest }),
}
process.stdout.write(`${JSON.stringify(await runTests(given, SERVER))}\n`) // closed peers let the process end
