/** The addresses of a broker's public and private server. */
import { z } from 'zod'
import { PORT_MAX, port, setting, words } from './kinds.ts'

const address = words('an address or a host name')
/** A fixed default that differs for each broker on a machine, because `PORT` does. */
const BESIDE_PORT = 'PORT + 1'

export const portSettings = {
  HOST: setting(address, {
    fallback: '127.0.0.1',
    unit: 'address',
    meaning: 'the address on which the WebSocket and HTTP server listens',
  }),
  PORT: setting(port, {
    fallback: 7450,
    unit: 'port',
    meaning: 'the port of the WebSocket and HTTP server; 0 selects a free one',
  }),
  ADMIN_HOST: setting(address, {
    fallback: '127.0.0.1',
    unit: 'address',
    meaning: 'the address on which the private server listens: `/metrics`, health checks and the operator API',
  }),
  ADMIN_PORT: setting(
    { ...port, parse: z.union([z.literal(BESIDE_PORT), port.parse]) },
    {
      fallback: BESIDE_PORT,
      unit: 'port',
      meaning:
        'the port of the private server; the default is 7451 for `PORT` 7450, and a free one if `PORT` is 0; 0 selects a free one',
    },
  ),
}

/** Replaces `PORT + 1` by its number. @returns an error sentence if that is no port */
export function resolvePorts(values: Record<string, unknown>): string[] {
  const { PORT, ADMIN_PORT } = values
  if (ADMIN_PORT !== BESIDE_PORT || typeof PORT !== 'number') return []
  values.ADMIN_PORT = PORT === 0 ? 0 : PORT + 1
  return PORT < PORT_MAX ? [] : [`ADMIN_PORT must be set where PORT is ${PORT_MAX}.`]
}
