/** Builds and packs the npm packages: `bun run build:packages [FOLDER]`, by default into `dist`. */
import { mkdirSync, statSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'
import { packSdk, ROOT } from './packages/sdk.ts'

const destination = resolve(process.argv[2] ?? join(ROOT, 'dist'))
mkdirSync(destination, { recursive: true })
const { tarball } = packSdk(destination)
console.log(`${relative(process.cwd(), tarball)}  ${(statSync(tarball).size / 1024).toFixed(0)} KiB`)
