/** Starts the compiled program: the broker if the first argument is `broker`, otherwise `sealpost`. */
import { BROKER_ARGUMENT } from '@sealpost/broker-program'

if (process.argv[2] === BROKER_ARGUMENT) {
  process.argv.splice(2, 1)
  await import('@sealpost/broker/main')
} else await import('@sealpost/cli/main')
