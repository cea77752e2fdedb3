/** A member over HTTP. */
import { HttpPeer } from '@sealpost/broker/testing-http'
import { hash256 } from '@sealpost/identity'
import type { Target } from './attack.ts'
import type { Member } from './stage.ts'

export class HttpMember {
  readonly #peer: HttpPeer
  readonly #place: Target & Member

  private constructor(peer: HttpPeer, place: Target & Member) {
    this.#peer = peer
    this.#place = place
  }

  static async enter(place: Target & Member): Promise<HttpMember> {
    return new HttpMember(await HttpPeer.enter(place), place)
  }

  /** The lines of a request, without the end of its head. */
  head(method: string, path: string): string {
    const { host } = new URL(this.#place.url)
    const { Authorization } = this.#peer.headers
    return `${method} ${path} HTTP/1.1\r\nHost: ${host}\r\nAuthorization: ${Authorization}\r\nConnection: close\r\n`
  }

  /** The path of a replay of the mesh's own space, of all events behind `after`. */
  replayPath(after: number): string {
    const { meshId } = this.#place
    return `/v1/meshes/${meshId}/history?space=${meshId}&after=${after}`
  }

  /** Whether a replay came to its end. */
  async replay(after: number): Promise<boolean> {
    const { status, text } = await this.#get(this.replayPath(after))
    return status === 200 && text.trimEnd().endsWith('}') && text.includes('"end":true')
  }

  /** An attachment for itself. Returns its id. */
  async createAttachment(bytes: number, chunkBytes: number): Promise<string> {
    const id = crypto.getRandomValues(new Uint8Array(16)).toHex()
    const recipients = [this.#place.identity.signing.publicKey]
    await this.#peer.post(`/v1/meshes/${this.#place.meshId}/attachments`, { id, bytes, chunkBytes, recipients })
    return id
  }

  async #get(path: string): Promise<{ status: number; text: string }> {
    const answer = await fetch(`${this.#place.httpUrl}${path}`, { headers: this.#peer.headers })
    return { status: answer.status, text: await answer.text() }
  }

  /** Whether the chunk is kept. */
  async putChunk(id: string, chunkNo: number, content: Uint8Array<ArrayBuffer>): Promise<boolean> {
    const hash = Buffer.from(hash256(content)).toString('base64url')
    const url = `${this.#place.httpUrl}/v1/meshes/${this.#place.meshId}/attachments/${id}/chunks/${chunkNo}?hash=${hash}`
    const { status } = await fetch(url, { method: 'PUT', headers: this.#peer.headers, body: content })
    return status === 204
  }
}
