/** The driver, observed by the oracle. Planted bugs are subclasses of it. */
import type { Engine } from '@sealpost/core'
import { Driver, type DriverOptions, type DriverPorts } from '@sealpost/driver'
import type { Append } from '@sealpost/protocol'
import type { ShardLife } from './shard-life.ts'

export class WatchedDriver extends Driver {
  protected readonly life: ShardLife

  constructor(life: ShardLife, ports: DriverPorts, options: DriverOptions) {
    super(ports, options)
    this.life = life
  }

  override step(decide: () => void): void {
    if (this.life.isOver) return
    super.step(() => {
      decide()
      this.life.world.inside.look(this.engine as Engine)
    })
  }

  override append(append: Append): void {
    if (this.life.heard.bars(append)) this.life.world.oracle.unwelcome()
    super.append(append)
  }
}
