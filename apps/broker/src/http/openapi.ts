import { z } from '@hono/zod-openapi'

export const security = [{ bearer: [] }]
export const hex = (bytes: number) => z.string().regex(new RegExp(`^[0-9a-f]{${bytes * 2}}$`))

export const json = <T extends z.ZodType>(schema: T, description: string) => ({
  description,
  content: { 'application/json': { schema } },
})
export const body = <T extends z.ZodType>(schema: T) => ({
  required: true,
  content: { 'application/json': { schema } },
})

type Table = Readonly<Record<string, { readonly status: number; readonly meaning: string }>>
/** Typed as if every request could get every refusal: a handler forwards what a component returns. */
type Refusals<T extends Table, S extends z.ZodType> = Record<
  Exclude<T[keyof T]['status'], 405>,
  ReturnType<typeof json<S>>
>

/** Returns a response for each status of these codes, with their meanings. */
export function refusalsFrom<T extends Table, S extends z.ZodType>(
  table: T,
  schema: S,
  codes: readonly (keyof T & string)[],
): Refusals<T, S> {
  const statuses = [...new Set(codes.map((code) => table[code]!.status))].sort()
  const meanings = (status: number) =>
    codes.filter((code) => table[code]!.status === status).map((code) => `\`${code}\`: ${table[code]!.meaning}.`)
  const rows = statuses.map((status) => [status, json(schema, meanings(status).join(' '))])
  return Object.fromEntries(rows)
}
