/** The compiled program: the command `sealpost`, and, with the first argument `broker`, the broker program. */
import { BROKER_ARGUMENT } from '@sealpost/broker-program'

if (process.argv[2] === BROKER_ARGUMENT) {
  process.argv.splice(2, 1)
  await import('@sealpost/broker/main')
} else await import('@sealpost/cli/main')
