/** Defines the limits that `LIMITS=off` disables: rates, mailboxes, meshes, and connections from one address. */
import { defaultLimits, type EngineLimits } from '@sealpost/core'
import type { z } from 'zod'
import { count, type Setting, setting } from './sections.ts'

/** The maximum mesh quota, because the census reads one row per delivery. */
const MESH_COUNT_MAX = 1_000_000

const { rate, byteRate, mailbox, mesh } = defaultLimits

export const limitSettings = {
  RATE_PER_SECOND: setting(count('envelopes'), {
    fallback: rate!.perSecond,
    unit: 'envelopes/s',
    meaning: "the number of envelopes per second that a user can send, across all of the user's devices",
  }),
  RATE_BURST: setting(count('envelopes'), {
    fallback: rate!.burst,
    unit: 'envelopes',
    meaning: 'the number of envelopes that a user can send at once before `RATE_PER_SECOND` applies',
  }),
  RATE_BYTES_PER_SECOND: setting(count('bytes'), {
    fallback: byteRate!.perSecond,
    unit: 'bytes/s',
    meaning: "how many bytes of envelopes a user can send per second, across all of the user's devices",
  }),
  RATE_BYTES_BURST: setting(count('bytes'), {
    fallback: byteRate!.burst,
    unit: 'bytes',
    meaning: 'how many bytes of envelopes a user can send at once before `RATE_BYTES_PER_SECOND` applies',
  }),
  MAILBOX_MAX: setting(count('deliveries'), {
    fallback: mailbox!.countMax,
    unit: 'deliveries',
    meaning: 'the maximum number of deliveries that can wait for one recipient',
  }),
  MAILBOX_BYTES_MAX: setting(count('bytes', Number.MAX_SAFE_INTEGER), {
    fallback: mailbox!.bytesMax,
    unit: 'bytes',
    meaning: 'the maximum total size of the deliveries that wait for one recipient',
  }),
  MAILBOX_PER_SENDER_MAX: setting(count('deliveries'), {
    fallback: mailbox!.perSenderMax,
    unit: 'deliveries',
    meaning:
      "the maximum number of deliveries from one user, across all of the user's devices, that can wait for one recipient",
  }),
  MAILBOX_BYTES_PER_SENDER_MAX: setting(count('bytes', Number.MAX_SAFE_INTEGER), {
    fallback: mailbox!.bytesPerSenderMax,
    unit: 'bytes',
    meaning: 'the maximum total size of the deliveries from one user that wait for one recipient',
  }),
  MESH_MAX: setting(count('deliveries', MESH_COUNT_MAX, 0), {
    fallback: mesh!.countMax,
    unit: 'deliveries',
    meaning: 'the maximum number of waiting deliveries and dead letters in one mesh; 0 disables the quotas of meshes',
  }),
  MESH_BYTES_MAX: setting(count('bytes', Number.MAX_SAFE_INTEGER), {
    fallback: mesh!.bytesMax,
    unit: 'bytes',
    meaning: 'the maximum total size of the waiting deliveries and dead letters in one mesh',
  }),
  MESH_PER_SENDER_MAX: setting(count('deliveries'), {
    fallback: mesh!.perSenderMax,
    unit: 'deliveries',
    meaning:
      "the maximum number of waiting deliveries and dead letters from one user, across all of the user's devices, in a mesh",
  }),
  MESH_BYTES_PER_SENDER_MAX: setting(count('bytes', Number.MAX_SAFE_INTEGER), {
    fallback: mesh!.bytesPerSenderMax,
    unit: 'bytes',
    meaning: 'the maximum total size of the waiting deliveries and dead letters from one user in a mesh',
  }),
  SOCKETS_PER_IP: setting(count('connections'), {
    fallback: 100,
    unit: 'connections',
    meaning: 'the maximum number of connections from one address; an IPv6 /64 counts as one address',
  }),
  UNAUTHENTICATED_PER_IP: setting(count('connections'), {
    fallback: 20,
    unit: 'connections',
    meaning: 'the maximum number of connections from one address that have not proven a key',
  }),
  UPGRADES_PER_SECOND: setting(count('connections'), {
    fallback: 10,
    unit: 'connections/s',
    meaning: 'the number of new connections per second from one address',
  }),
  UPGRADES_BURST: setting(count('connections'), {
    fallback: 100,
    unit: 'connections',
    meaning:
      'the number of new connections from one address that can open at once before `UPGRADES_PER_SECOND` applies; after a restart, all clients behind an address reconnect at once',
  }),
  REQUESTS_PER_SECOND: setting(count('requests'), {
    fallback: 40,
    unit: 'requests/s',
    meaning: 'the number of HTTP requests per second from one address',
  }),
  REQUESTS_BURST: setting(count('requests'), {
    fallback: 80,
    unit: 'requests',
    meaning:
      'the number of HTTP requests from one address that can arrive at once before `REQUESTS_PER_SECOND` applies',
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
