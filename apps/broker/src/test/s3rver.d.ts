/** Declares the parts of the S3 test server in use, which has no types. */
declare module '@20minutes/s3rver' {
  export default class S3rver {
    constructor(options: {
      address: string
      port: number
      silent: boolean
      directory: string
      configureBuckets: readonly { name: string }[]
    })
    readonly store: { deleteObject(bucket: string, key: string): Promise<void> }
    run(): Promise<{ port: number }>
    close(): Promise<void>
  }
}
