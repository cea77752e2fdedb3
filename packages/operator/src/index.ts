/**
 * What the operators' interface says, as schemas: the broker describes its answers with them, the command line and the
 * console read them. Times are milliseconds since 1970 or of a duration, and end in `Ms`. Nothing here is a message.
 */
export * from './mail.ts'
export * from './meshes.ts'
export * from './overview.ts'
