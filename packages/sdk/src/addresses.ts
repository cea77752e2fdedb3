/**
 * Where a peer dials next: the addresses its application gave, the home that a shard named, and the shards it was told of
 * for the time when that one is gone. None of them is trusted for being named: whoever answers proves the pinned key.
 */
import { isDialable, normalizeAuthority } from '@sealpost/identity'
import type { FrameOf } from '@sealpost/protocol'
import type { Millis } from '@sealpost/std'

export interface Address {
  /** As it is dialled, but for the path. */
  readonly url: string
  /** As both sides sign it. */
  readonly authority: string
  /** `given` by the application, `told` by a shard for later, or the `home` that one sent us to. */
  readonly from: 'given' | 'told' | 'home'
  /** Of its key, as whoever sent us there has it. */
  readonly certificate: Uint8Array | null
}

/** From one shard to the next in a row; more would be shards that don't agree. */
const HOPS_MAX = 3
/** Who did not answer is not asked again by somebody else's word for so long. */
const DOWN_FOR_MS: Millis = 10_000

export class Addresses {
  readonly #given: readonly Address[]
  #told: readonly Address[] = []
  #dialled: Address
  /** Who sent us to the home that is dialled now. */
  private sender: Address | null = null
  /** Who served us last: others would send us there. */
  #servedBy: string | null = null
  #hops = 0
  readonly #downUntilMs = new Map<string, Millis>()
  /** The next shard is asked to serve us itself: the home of our mesh can't be reached. */
  asksToStay = false

  /** At least one. @throws OperatingError `authority_malformed` */
  constructor(urls: readonly string[]) {
    this.#given = urls.map((url) => addressOf(url, 'given'))
    this.#dialled = this.#given[0]!
  }

  get current(): Address {
    return this.#dialled
  }

  /** Others that may be tried now. */
  hasOther(nowMs: Millis): boolean {
    return this.#others(nowMs).length > 0
  }

  /** A shard that has proven itself says where our mesh is at home. False: we can't, and ask that shard to serve us. */
  follow({ url, certificate }: Pick<FrameOf<'moved'>, 'url' | 'certificate'>, nowMs: Millis): boolean {
    const home = this.#isFit(url) ? addressOf(url, 'home', certificate) : null
    const isLoop = this.#hops >= HOPS_MAX || home?.authority === this.#dialled.authority
    if (!home || isLoop || this.#isDown(home, nowMs)) {
      this.asksToStay = true
      return false
    }
    this.#hops += 1
    this.sender = this.#dialled
    this.#dialled = home
    this.asksToStay = false
    return true
  }

  /** Shards that could serve us if the one that does were gone, the best first. */
  tell(urls: readonly string[]): void {
    this.#told = urls.filter((url) => this.#isFit(url)).map((url) => addressOf(url, 'told'))
  }

  /** The one that was dialled goes away, which the others know. Answers as `turn`. */
  leave(nowMs: Millis): boolean {
    this.#servedBy = null
    return this.turn(nowMs)
  }

  /**
   * The one that was dialled does not answer. Answers whether another one is dialled next; if not, all were tried, and it
   * begins anew with the first.
   */
  turn(nowMs: Millis): boolean {
    const { authority } = this.#dialled
    this.#downUntilMs.set(authority, nowMs + DOWN_FOR_MS)
    this.#hops = 0
    const { sender } = this
    this.sender = null
    const next = sender && !this.#isDown(sender, nowMs) ? sender : this.#others(nowMs)[0]
    // Whom we ask first after a crash does not know of it yet, and would send us back: each peer would come twice.
    this.asksToStay = next !== undefined && (next === sender || authority === this.#servedBy)
    if (!next) this.#downUntilMs.clear()
    this.#dialled = next ?? this.#given[0]!
    return next !== undefined
  }

  /** A session began or ended here: what led to it is over. */
  settle(): void {
    this.#servedBy = this.#dialled.authority
    this.#hops = 0
    this.sender = null
    this.asksToStay = false
  }

  #others(nowMs: Millis): Address[] {
    const { authority } = this.#dialled
    return [...this.#told, ...this.#given].filter(
      (other) => other.authority !== authority && !this.#isDown(other, nowMs),
    )
  }

  #isDown({ authority }: Address, nowMs: Millis): boolean {
    return nowMs < (this.#downUntilMs.get(authority) ?? 0)
  }

  /** A shard sends nobody from an encrypted connection to one that is not. */
  #isFit(url: string): boolean {
    return isDialable(url) && (url.startsWith('wss:') || this.#given.some((own) => /^(ws|http):/i.test(own.url)))
  }
}

function addressOf(url: string, from: Address['from'], certificate?: Uint8Array): Address {
  return { url, authority: normalizeAuthority(url), from, certificate: certificate?.length ? certificate : null }
}
