/** All scenarios, in the order of their lines. */
import type { TortureScenario } from './scenario.ts'
import { brokerKill, brokerStop, herd, rollingDeploy } from './scenarios/brokers.ts'
import { backendStop, postgresImmediate, postgresKill, postgresRestart, terminateStorm } from './scenarios/databases.ts'
import { clockBroker, clockDatabase, diskFull } from './scenarios/machines.ts'
import { answerLost, halfOpen, networkCut, networkDelay } from './scenarios/networks.ts'
import { mailBomb, neverReading, peerStop, poison, slowConsumer } from './scenarios/peers.ts'
import { powerLoss, storePowerLoss } from './scenarios/power.ts'
import { sockets } from './scenarios/sockets.ts'

export const SCENARIOS: readonly TortureScenario[] = [
  brokerKill,
  brokerStop,
  rollingDeploy,
  herd,
  postgresKill,
  postgresImmediate,
  postgresRestart,
  backendStop,
  terminateStorm,
  networkCut,
  networkDelay,
  halfOpen,
  answerLost,
  peerStop,
  slowConsumer,
  neverReading,
  mailBomb,
  poison,
  diskFull,
  powerLoss,
  storePowerLoss,
  clockBroker,
  clockDatabase,
  sockets,
]
