/** The limits that `LIMITS=off` disables: rates, mailboxes, meshes, and connections of one address. */
import { defaultLimits, type EngineLimits } from '@sealpost/core'
import type { z } from 'zod'
import { count, type Setting, setting } from './sections.ts'

/** Bounded because the census of a mesh reads one row per delivery. */
const MESH_COUNT_MAX = 1_000_000

const { rate, byteRate, mailbox, mesh } = defaultLimits

export const limitSettings = {
  RATE_PER_SECOND: setting(count('envelopes'), {
    fallback: rate!.perSecond,
    unit: 'envelopes/s',
    meaning: 'the rate at which a user can send envelopes, on all its devices',
  }),
  RATE_BURST: setting(count('envelopes'), {
    fallback: rate!.burst,
    unit: 'envelopes',
    meaning: 'the burst of these envelopes',
  }),
  RATE_BYTES_PER_SECOND: setting(count('bytes'), {
    fallback: byteRate!.perSecond,
    unit: 'bytes/s',
    meaning: 'the rate of the bytes of these envelopes',
  }),
  RATE_BYTES_BURST: setting(count('bytes'), {
    fallback: byteRate!.burst,
    unit: 'bytes',
    meaning: 'the burst of these bytes',
  }),
  MAILBOX_MAX: setting(count('deliveries'), {
    fallback: mailbox!.countMax,
    unit: 'deliveries',
    meaning: 'the maximum number of deliveries that wait for one recipient',
  }),
  MAILBOX_BYTES_MAX: setting(count('bytes', Number.MAX_SAFE_INTEGER), {
    fallback: mailbox!.bytesMax,
    unit: 'bytes',
    meaning: 'the maximum bytes of these deliveries',
  }),
  MAILBOX_PER_SENDER_MAX: setting(count('deliveries'), {
    fallback: mailbox!.perSenderMax,
    unit: 'deliveries',
    meaning: 'the maximum number of deliveries of one user, on all its devices, that wait for one recipient',
  }),
  MAILBOX_BYTES_PER_SENDER_MAX: setting(count('bytes', Number.MAX_SAFE_INTEGER), {
    fallback: mailbox!.bytesPerSenderMax,
    unit: 'bytes',
    meaning: 'the maximum bytes of these deliveries',
  }),
  MESH_MAX: setting(count('deliveries', MESH_COUNT_MAX, 0), {
    fallback: mesh!.countMax,
    unit: 'deliveries',
    meaning: 'the maximum number of waiting deliveries and dead letters in one mesh; 0 disables the quotas of meshes',
  }),
  MESH_BYTES_MAX: setting(count('bytes', Number.MAX_SAFE_INTEGER), {
    fallback: mesh!.bytesMax,
    unit: 'bytes',
    meaning: 'the maximum bytes of these deliveries and dead letters',
  }),
  MESH_PER_SENDER_MAX: setting(count('deliveries'), {
    fallback: mesh!.perSenderMax,
    unit: 'deliveries',
    meaning: 'the maximum number of deliveries and dead letters of one user, on all its devices, in a mesh',
  }),
  MESH_BYTES_PER_SENDER_MAX: setting(count('bytes', Number.MAX_SAFE_INTEGER), {
    fallback: mesh!.bytesPerSenderMax,
    unit: 'bytes',
    meaning: 'the maximum bytes of these deliveries and dead letters',
  }),
  SOCKETS_PER_IP: setting(count('connections'), {
    fallback: 100,
    unit: 'connections',
    meaning: 'the maximum number of connections from one address (one /64 for IPv6)',
  }),
  UNAUTHENTICATED_PER_IP: setting(count('connections'), {
    fallback: 20,
    unit: 'connections',
    meaning: 'the maximum number of these that have not proven a key',
  }),
  UPGRADES_PER_SECOND: setting(count('connections'), {
    fallback: 10,
    unit: 'connections/s',
    meaning: 'the rate of new connections from one address',
  }),
  UPGRADES_BURST: setting(count('connections'), {
    fallback: 100,
    unit: 'connections',
    meaning: 'the burst of new connections from one address; after a restart all its clients reconnect at once',
  }),
  REQUESTS_PER_SECOND: setting(count('requests'), {
    fallback: 40,
    unit: 'requests/s',
    meaning: 'the rate of HTTP requests from one address',
  }),
  REQUESTS_BURST: setting(count('requests'), {
    fallback: 80,
    unit: 'requests',
    meaning: 'the burst of these requests',
  }),
} satisfies Record<string, Setting<unknown>>

type LimitConfig = { readonly [N in keyof typeof limitSettings]: z.output<(typeof limitSettings)[N]['parse']> }

export const engineRates = (config: LimitConfig): Pick<EngineLimits, 'rate' | 'byteRate' | 'mailbox' | 'mesh'> => ({
  rate: { perSecond: config.RATE_PER_SECOND, burst: config.RATE_BURST },
  byteRate: { perSecond: config.RATE_BYTES_PER_SECOND, burst: config.RATE_BYTES_BURST },
  mailbox: {
    countMax: config.MAILBOX_MAX,
    bytesMax: config.MAILBOX_BYTES_MAX,
    perSenderMax: config.MAILBOX_PER_SENDER_MAX,
    bytesPerSenderMax: config.MAILBOX_BYTES_PER_SENDER_MAX,
  },
  mesh: config.MESH_MAX === 0 ? null : meshLimits(config),
})

const meshLimits = (config: LimitConfig): EngineLimits['mesh'] => ({
  countMax: config.MESH_MAX,
  bytesMax: config.MESH_BYTES_MAX,
  perSenderMax: config.MESH_PER_SENDER_MAX,
  bytesPerSenderMax: config.MESH_BYTES_PER_SENDER_MAX,
})
