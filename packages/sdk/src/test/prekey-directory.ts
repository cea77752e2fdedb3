/** Implements the broker's directory of prekeys in memory, behind the requests of `HttpAccess`. It has no limits. */
import type { MeshId, PeerKey } from '@sealpost/std'
import type { HttpAnswer, HttpAsk } from '../http/access.ts'

interface OneTimeJson {
  readonly id: number
  readonly publicKey: string
}

interface Publication {
  readonly statement: string
  readonly oneTime: readonly OneTimeJson[]
  readonly replaces: boolean
}

interface Published {
  readonly statement: string
  oneTime: OneTimeJson[]
}

export class PrekeyDirectory {
  readonly meshId: MeshId
  /** Receives the requests instead of the directory, if it is set. */
  intercept: ((ask: HttpAsk) => Promise<HttpAnswer>) | undefined
  /** The sizes of the publications: how many one-time prekeys each contained. */
  readonly offered: number[] = []
  readonly #published = new Map<PeerKey, Published>()

  constructor(meshId: MeshId) {
    this.meshId = meshId
  }

  accessOf(peer: PeerKey) {
    const ask = async (asked: HttpAsk): Promise<HttpAnswer> =>
      this.intercept?.(asked) ??
      answerOf(asked.path.endsWith('/claim') ? this.#claim(asked) : this.#publish(peer, asked))
    return { meshId: this.meshId, ask, close: async () => undefined }
  }

  statementOf(peer: PeerKey): string | undefined {
    return this.#published.get(peer)?.statement
  }

  /** Lets others claim all one-time prekeys of the peer. */
  exhaust(peer: PeerKey): void {
    this.#published.get(peer)!.oneTime = []
  }

  #publish(peer: PeerKey, { json }: HttpAsk): object {
    const { statement, oneTime, replaces } = json as Publication
    this.offered.push(oneTime.length)
    const before = replaces ? [] : (this.#published.get(peer)?.oneTime ?? [])
    this.#published.set(peer, { statement, oneTime: [...before, ...oneTime] })
    return { oneTimeLeft: before.length + oneTime.length, lastResorts: 0 }
  }

  #claim({ json }: HttpAsk): object {
    const { peers } = json as { peers: readonly PeerKey[] }
    const claims = peers.map((peer) => {
      const published = this.#published.get(peer)
      if (!published) return { status: 'no_prekeys' }
      const { statement } = published
      const oneTime = published.oneTime.shift()
      return oneTime ? { status: 'claimed', statement, oneTime } : { status: 'last_resort', statement }
    })
    return { claims }
  }
}

const answerOf = (json: object): HttpAnswer => ({ bytes: new Uint8Array(), json: <T>() => json as T })
