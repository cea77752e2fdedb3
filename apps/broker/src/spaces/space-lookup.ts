/** Looks up whether a peer's messages are recorded in a space. */
import type { PeerSpace, SpaceFacts } from '@sealpost/core'
import { Spaces } from '@sealpost/history'
import type { Database } from '@sealpost/pg'
import type { MeshId } from '@sealpost/std'

export class SpaceLookup {
  private readonly spaces: Spaces
  private readonly meshBytesMax: number

  /** `meshBytesMax`: the limit of all entries and all history of a mesh. */
  constructor(db: Database, meshBytesMax: number) {
    this.spaces = new Spaces(db)
    this.meshBytesMax = meshBytesMax
  }

  async find(meshId: MeshId, { peer, spaceId }: PeerSpace): Promise<SpaceFacts> {
    const space = await this.spaces.find({ meshId, peer }, spaceId)
    const isFull = (space?.meshBytes ?? 0) >= this.meshBytesMax
    return { spaceId, keepsMessages: space?.keepsMessages === true, isFull }
  }
}
