import { CHUNK_BYTES_MAX } from '@sealpost/identity'
import { openDatabase } from '@sealpost/pg'
import { SESSION } from '@sealpost/queue/postgres'
import type { AttachmentConfig } from '../config/sections.ts'
import type { DatabaseOrigin } from '../database/origin.ts'
import { RequestLimits } from '../http/route-parts.ts'
import { errorFields, type Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import {
  AttachmentExpiry,
  type AttachmentLimits,
  AttachmentRequests,
  type ChunkStore,
  postgresChunks,
} from './attachments.ts'
import { type AttachmentParts, Transit } from './http.ts'
import { s3Chunks } from './s3-chunks.ts'

type Options = AttachmentConfig & { readonly DATABASE_URL: string; readonly LIMITS: 'on' | 'off' }
type Database = Awaited<ReturnType<typeof openDatabase>>

/** The number of database connections for files, which delay no messages. */
const CONNECTIONS = 2
const AT_A_TIME = 4
/** The maximum share of the memory for one mesh. */
const MESH_SHARE = 0.5

export async function openAttachments(
  config: Options,
  { origin, log, metrics }: { origin: DatabaseOrigin; log: Log; metrics: Metrics },
): Promise<AttachmentParts & { close(): Promise<void> }> {
  const names = { applicationName: 'sealpost attachments', connections: CONNECTIONS, settings: SESSION }
  const db = origin.guards(await openDatabase(config.DATABASE_URL, { ...names, ...origin.guard, waitingMax: 1000 }))
  const stores = storesOf(config, db)
  const attachments = new AttachmentRequests({ db, store: stores[0]!, stores, limits: limitsOf(config) })
  const transit = new Transit(config.ATTACHMENT_TRANSIT_BYTES)
  const counters = { taken: 0, takenBytes: 0, given: 0, givenBytes: 0, forgotten: 0 }
  show(metrics, transit, counters)
  const expiry = new AttachmentExpiry({
    db,
    stores,
    forgotten: () => (counters.forgotten += 1),
    failed: (error) => log.warn('attachments.sweep_failed', errorFields(error)),
  })
  const rate = { perSecond: config.CHUNKS_PER_SECOND, burst: config.CHUNKS_BURST }
  const ofMesh = Math.max(AT_A_TIME, Math.floor((MESH_SHARE * config.ATTACHMENT_TRANSIT_BYTES) / CHUNK_BYTES_MAX))
  return {
    ...{ attachments, transit, counters },
    meshes: new RequestLimits(null, config.LIMITS === 'on' ? ofMesh : Infinity),
    chunkers: new RequestLimits(config.LIMITS === 'on' ? rate : null, AT_A_TIME),
    close: async () => {
      await expiry.stop()
      await db.close()
    },
  }
}

/** Returns the stores, the one for new attachments first. */
function storesOf(config: Options, db: Database): ChunkStore[] {
  const inDatabase = postgresChunks(db)
  return config.S3_BUCKET === '' ? [inDatabase] : [s3Chunks(db, config), inDatabase]
}

function limitsOf(config: Options): AttachmentLimits {
  return {
    bytesMax: config.ATTACHMENT_BYTES_MAX,
    quota:
      config.LIMITS === 'off'
        ? null
        : {
            perPeer: config.ATTACHMENTS_PER_PEER,
            bytesPerPeer: config.ATTACHMENT_BYTES_PER_PEER,
            perMesh: config.ATTACHMENTS_PER_MESH,
            bytesPerMesh: config.ATTACHMENT_BYTES_PER_MESH,
          },
    keepSeconds: config.ATTACHMENT_SECONDS,
    keepSecondsMax: config.ATTACHMENT_SECONDS_MAX,
    finishSeconds: config.ATTACHMENT_FINISH_SECONDS,
  }
}

function show(metrics: Metrics, transit: Transit, counters: AttachmentParts['counters'] & { forgotten: number }): void {
  metrics.count({
    attachment_chunks_uploaded: ['attachment chunks that peers uploaded', () => counters.taken],
    attachment_uploaded_bytes: ['bytes of the attachment chunks that peers uploaded', () => counters.takenBytes],
    attachment_chunks_fetched: ['attachment chunks that peers fetched', () => counters.given],
    attachment_fetched_bytes: ['bytes of the attachment chunks that peers fetched', () => counters.givenBytes],
    attachments_expired: ['expired attachments that were deleted', () => counters.forgotten],
  })
  metrics.show({ attachment_transit_bytes: ['bytes reserved for attachment chunks in transit', () => transit.bytes] })
}
