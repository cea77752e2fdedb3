/** Authenticates operators by their tokens, and checks scopes. */
import type { Database } from '@sealpost/pg'
import { type MeshId, type Millis, OperatingError } from '@sealpost/std'
import { type AdminScope, type AdminTokenHolder, findAdminToken } from '@sealpost/store'
import type { AdminCode } from './routes.ts'

export interface Needed {
  readonly scope: AdminScope
  /** The requested mesh; `own`: the token's mesh; null: no mesh, or all of them. */
  readonly meshId: MeshId | 'own' | null
}

/**
 * How long a token is cached: a revocation applies after this time at most, and reads work while the database is
 * unavailable.
 */
const BELIEVED_MS = 3000
const BELIEVED_WHILE_AWAY_MS = 5 * 60_000
const BELIEVED_MAX = 1000
/** Each check takes a database connection: invented tokens must not occupy all of them. */
const QUESTIONS_MAX = 16

interface Belief {
  readonly holder: AdminTokenHolder
  readonly foundAtMs: Millis
}

export class AdminAuth {
  private readonly db: Database
  /** Keyed by the hash of a token, so that a heap dump contains none. */
  private readonly believed = new Map<string, Belief>()
  private questions = 0

  constructor(db: Database) {
    this.db = db
  }

  /** @throws OperatingError if the database does not respond */
  async admit(header: string | undefined, needed: Needed): Promise<AdminTokenHolder | AdminCode> {
    const token = /^Bearer (spa_[A-Za-z0-9_-]{1,100})$/.exec(header ?? '')?.[1]
    if (!token) return 'token_invalid'
    const holder = await this.holderOf(token, needed.scope)
    if (typeof holder === 'string') return holder
    const mayChange = needed.scope === 'read' || holder.scope === 'operate'
    const mayReach = holder.meshId === null || [holder.meshId, 'own'].includes(needed.meshId ?? '')
    return mayChange && mayReach ? holder : 'scope_missing'
  }

  private async holderOf(token: string, scope: AdminScope): Promise<AdminTokenHolder | AdminCode> {
    const name = new Bun.CryptoHasher('sha256').update(token).digest('hex')
    const belief = this.believed.get(name)
    if (belief && ageOf(belief) < Math.min(BELIEVED_MS, belief.holder.remainingMs)) return belief.holder
    if (this.questions >= QUESTIONS_MAX) return 'too_many_requests'
    this.questions += 1
    try {
      const found = await findAdminToken(this.db, token)
      this.believed.delete(name)
      if (found) this.believe(name, found)
      return found ?? 'token_invalid'
    } catch (error) {
      const isKnown = belief && ageOf(belief) < Math.min(BELIEVED_WHILE_AWAY_MS, belief.holder.remainingMs)
      if (error instanceof OperatingError && isKnown && scope === 'read') return belief.holder
      throw error
    } finally {
      this.questions -= 1
    }
  }

  private believe(name: string, holder: AdminTokenHolder): void {
    this.believed.set(name, { holder, foundAtMs: performance.now() })
    if (this.believed.size > BELIEVED_MAX) this.believed.delete(this.believed.keys().next().value!)
  }
}

const ageOf = ({ foundAtMs }: Belief): Millis => performance.now() - foundAtMs

const LOOPBACK_NAME = /^([a-z0-9_-]+\.)*localhost$/

/** Returns the refusal of a request whose host is neither loopback nor in `names`; otherwise null. */
export function hostRefusal(request: Request, names: readonly string[]): Response | null {
  const host = hostOf(request)
  if (host !== null && (isAddress(host) || LOOPBACK_NAME.test(host) || names.includes(host))) return null
  return Response.json({ code: 'wrong_authority' }, { status: 421 })
}

function hostOf(request: Request): string | null {
  const url = `http://${request.headers.get('host') ?? ''}`
  return URL.canParse(url) ? new URL(url).hostname.toLowerCase() : null
}

const isAddress = (host: string): boolean => host.startsWith('[') || /^\d+\.\d+\.\d+\.\d+$/.test(host)
