import { defineConfig } from 'drizzle-kit'

export default defineConfig({
  dialect: 'postgresql',
  schema: './packages/schema/src/tables/*.ts',
  out: './packages/schema/migrations',
  dbCredentials: { url: process.env.DATABASE_URL ?? '' },
})
