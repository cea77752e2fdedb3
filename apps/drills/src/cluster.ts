import type { BrokerProgram } from '@sealpost/broker-program'
import { newBrokerKeyFile, startOwnBroker } from '@sealpost/harness/programs/own-broker'
import { waitUntil } from '@sealpost/harness/programs/pace'
import { startOwnPostgres } from '@sealpost/harness/programs/postgres'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { migrate } from '@sealpost/schema'

type Environment = Readonly<Record<string, string>>

export class Cluster {
  readonly brokers: BrokerProgram[] = []
  readonly database: string
  readonly #env: Environment
  readonly #teardown: Teardown

  private constructor(database: string, env: Environment, teardown: Teardown) {
    this.database = database
    this.#env = env
    this.#teardown = teardown
  }

  static async open(count: number, teardown: Teardown, env: Environment = {}): Promise<Cluster> {
    const BROKER_KEY_FILE = await newBrokerKeyFile(teardown)
    const { url } = await startOwnPostgres(teardown)
    await migrate(url)
    const cluster = new Cluster(url, { BROKER_KEY_FILE, LIMITS: 'off', ...env }, teardown)
    for (let no = 0; no < count; no++) cluster.brokers.push(await cluster.#start('0'))
    await cluster.#untilAllKnown()
    return cluster
  }

  /** Stops a broker and starts another one at its address. */
  async replace(no: number): Promise<void> {
    const { url, ...former } = this.brokers[no]!
    await former.stop()
    this.brokers[no] = await this.#start(new URL(url).port)
    await this.#untilAllKnown()
  }

  async kill(no: number): Promise<void> {
    const [killed] = this.brokers.splice(no, 1)
    killed!.kill()
    await killed!.exited
  }

  #start(port: string): Promise<BrokerProgram> {
    const env = { ...this.#env, PORT: port, PUBLIC_URL: `ws://127.0.0.1:${port}` }
    return startOwnBroker({ databaseUrl: this.database, env }, this.#teardown)
  }

  #untilAllKnown(): Promise<void> {
    return waitUntil('all brokers know one another', async () => {
      const known = await Promise.all(this.brokers.map(shardsKnownTo))
      return known.every((number) => number === this.brokers.length)
    })
  }
}

async function shardsKnownTo({ adminUrl }: BrokerProgram): Promise<number> {
  const metrics = await (await fetch(`${adminUrl}/metrics`)).text()
  return Number(/^sealpost_shards (\d+)$/m.exec(metrics)?.[1])
}
