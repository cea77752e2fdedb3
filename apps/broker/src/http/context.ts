import type { OpenAPIHono } from '@hono/zod-openapi'
import type { Millis } from '@sealpost/std'
import type { Context } from 'hono'
import type { TokenHolder } from './tokens.ts'

export interface Caller {
  readonly ip: string
  readonly authority: string
  /** Charges bytes of an unproven client of this address before they are parsed, and returns 0, or when to retry. */
  readonly chargeUnproven: (bytes: number) => Millis
  /** Charges bytes that were read, even without remaining budget. */
  readonly oweUnproven: (bytes: number) => void
  staysSilent(seconds: number): void
}

export type Env = { Bindings: Caller; Variables: { holder: TokenHolder } }
export type HttpApi = OpenAPIHono<Env>
export type HttpContext = Context<Env>
