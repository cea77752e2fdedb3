import { defineConfig } from 'drizzle-kit'

export default defineConfig({
  dialect: 'postgresql',
  schema: [
    './packages/db/src/schema.ts',
    './packages/db/src/schema-admin.ts',
    './packages/db/src/schema-history.ts',
    './packages/db/src/schema-attachments.ts',
  ],
  out: './packages/db/migrations',
  dbCredentials: { url: process.env.DATABASE_URL ?? '' },
})
