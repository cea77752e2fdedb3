/** What the handlers of the HTTP surface know of a request. */
import type { OpenAPIHono } from '@hono/zod-openapi'
import type { Millis } from '@sealpost/std'
import type { Context } from 'hono'
import type { TokenHolder } from './tokens.ts'

/** What the server knows of a request. */
export interface Caller {
  /** The client's address, or its IPv6 prefix. */
  readonly ip: string
  /** The name under which the client reached us, with its port. */
  readonly authority: string
  /** Counts bytes that an unproven client of this address wants parsed, and returns 0; or when to come again. */
  readonly chargeUnproven: (bytes: number) => Millis
  /** Counts bytes that were read of it, also when it has none left. */
  readonly oweUnproven: (bytes: number) => void
  /** The answer may be silent for so long. */
  staysSilent(seconds: number): void
}

export type Env = { Bindings: Caller; Variables: { holder: TokenHolder } }
export type Api = OpenAPIHono<Env>
export type Asking = Context<Env>
