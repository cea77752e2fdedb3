/**
 * Exports the statements of brokers and operators outside the queue: members, groups, meshes, dead letters,
 * attachments, shards. Every function that takes a `Database` throws `DatabaseError`; comments list only codes with a
 * special meaning.
 */
export * from './cluster/database-stats.ts'
export * from './cluster/origin.ts'
export * from './cluster/shards.ts'
export * from './groups/groups.ts'
export * from './mail/attachments.ts'
export * from './mail/dead-letters.ts'
export * from './mail/prepared-sends.ts'
export * from './mail/sent.ts'
export * from './mail/usage.ts'
export * from './mail/waiting.ts'
export * from './members/devices.ts'
export * from './members/key-bindings.ts'
export * from './members/membership.ts'
export * from './members/mesh-log.ts'
export * from './members/prekeys.ts'
export * from './members/proofs.ts'
export * from './members/recoveries.ts'
export * from './meshes/meshes.ts'
export * from './operators/operators.ts'
