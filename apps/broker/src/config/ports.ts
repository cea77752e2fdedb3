/** Where the two servers of a broker listen. */
import { z } from 'zod'
import { PORT_MAX, port, setting, words } from './kinds.ts'

const address = words('an address or a host name')
/** A fixed port, and another one for each broker on a machine, as their `PORT` is. */
const BESIDE_PORT = 'PORT + 1'

export const portSettings = {
  HOST: setting(address, {
    fallback: '127.0.0.1',
    unit: 'address',
    meaning: 'where the WebSocket and HTTP server listens',
  }),
  PORT: setting(port, { fallback: 7450, unit: 'port', meaning: 'its port; 0 takes a free one' }),
  ADMIN_HOST: setting(address, {
    fallback: '127.0.0.1',
    unit: 'address',
    meaning: 'where the private server listens: `/metrics`, health and what operators use',
  }),
  ADMIN_PORT: setting(
    { ...port, parse: z.union([z.literal(BESIDE_PORT), port.parse]) },
    {
      fallback: BESIDE_PORT,
      unit: 'port',
      meaning:
        'its port: unless set the one above `PORT`, 7451 beside 7450, and any free one where `PORT` is 0; 0 takes a free one',
    },
  ),
}

/** Replaces `PORT + 1` by its number. @returns a sentence when there is no such port */
export function resolvePorts(values: Record<string, unknown>): string[] {
  const { PORT, ADMIN_PORT } = values
  if (ADMIN_PORT !== BESIDE_PORT || typeof PORT !== 'number') return []
  values.ADMIN_PORT = PORT === 0 ? 0 : PORT + 1
  return PORT < PORT_MAX ? [] : [`ADMIN_PORT must be set where PORT is ${PORT_MAX}.`]
}
