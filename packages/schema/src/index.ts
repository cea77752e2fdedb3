/** Contains the tables of a database, its roles, and the migrations that create them. */
export { columnNames, execute } from './drizzle.ts'
export * from './migrate.ts'
export * from './roles.ts'
export * from './tables/cluster.ts'
export * from './tables/history.ts'
export * from './tables/members.ts'
export * from './tables/prepared.ts'
export * from './tables/queue.ts'
