/**
 * Writes to a file store, and kills itself at one file system operation. Arguments: the path of the store, and the
 * number of the operation; 0 for none. Prints the number of each confirmed batch, and finally the number of operations.
 */
import { writeSync } from 'node:fs'
import { type AppendFile, type InPlaceFile, nodeFiles } from '../stores/file/files.ts'
import { StoreJournal } from '../stores/file/journal.ts'
import { put, secret } from './secret-records.ts'

const BATCHES = 7
const ERASE_EVERY = 3

const [path, killAt] = [process.argv[2]!, Number(process.argv[3])]
let operations = 0

function counted<Args extends unknown[], Result>(run: (...args: Args) => Promise<Result>) {
  return async (...args: Args): Promise<Result> => {
    operations += 1
    const isLast = operations === killAt
    if (isLast && killAt % 2 === 0) process.kill(process.pid, 'SIGKILL') // odd operations take effect first
    const result = await run(...args)
    if (isLast) process.kill(process.pid, 'SIGKILL')
    return result
  }
}

const appending = ({ append, sync, close }: AppendFile) => ({ append: counted(append), sync: counted(sync), close })
const inPlace = ({ write, sync, close }: InPlaceFile) => ({ write: counted(write), sync: counted(sync), close })

const journal = await StoreJournal.open(
  {
    read: nodeFiles.read,
    create: counted(async (path) => appending(await nodeFiles.create(path))),
    openInPlace: counted(async (path) => inPlace(await nodeFiles.openInPlace(path))),
    rename: counted(nodeFiles.rename),
    remove: counted(nodeFiles.remove),
    syncFolder: counted(nodeFiles.syncFolder),
  },
  path,
)
for (let no = 1; no <= BATCHES; no++) {
  await journal.write([secret('a', no), put(`out ${no}`, 100 + no)])
  writeSync(1, `${no}\n`)
  if (no % ERASE_EVERY === 0) await journal.eraseObsoleteSecrets()
}
await journal.close()
writeSync(1, `${operations} operations\n`)
