/** Starts the compiled program: the command `sealpost`, or the broker program if the first argument is `broker`. */
import { BROKER_ARGUMENT } from '@sealpost/broker-program'

if (process.argv[2] === BROKER_ARGUMENT) {
  process.argv.splice(2, 1)
  await import('@sealpost/broker/main')
} else await import('@sealpost/cli/main')
