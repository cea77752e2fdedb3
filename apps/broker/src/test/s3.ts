/// <reference path="./s3rver.d.ts" />
/** Provides tests with an S3 server with one bucket, and the broker's settings for it. */
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import S3rver from '@20minutes/s3rver'

const BUCKET = 'files'

export interface TestingS3 {
  readonly env: Readonly<Record<string, string>>
  objects(): Promise<number>
  close(): Promise<void>
}

export async function testingS3(): Promise<TestingS3> {
  const folder = await mkdtemp(join(tmpdir(), 'sealpost-s3-'))
  const options = { address: '127.0.0.1', port: 0, silent: true }
  const server = new S3rver({ ...options, directory: folder, configureBuckets: [{ name: BUCKET }] })
  const remove = server.store.deleteObject.bind(server.store)
  // Ignores a missing folder, which another request may have emptied; unlike others, this server would fail.
  server.store.deleteObject = (...object) =>
    remove(...object).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error
    })
  const { port } = await server.run()
  return {
    env: {
      S3_BUCKET: BUCKET,
      S3_ENDPOINT: `http://127.0.0.1:${port}`,
      S3_ACCESS_KEY_ID: 'S3RVER',
      S3_SECRET_ACCESS_KEY: 'S3RVER',
    },
    objects: async () => (await readdir(folder, { recursive: true })).filter((path) => path.endsWith('_object')).length,
    close: async () => {
      await server.close()
      await rm(folder, { recursive: true, force: true })
    },
  }
}
