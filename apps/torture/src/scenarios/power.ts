/** Power loss: programs die at once, and everything they wrote without fsync is gone. */
import { join } from 'node:path'
import { cutPower, mountLazyFolder, powerObstacle } from '@sealpost/harness/programs/lazyfs'
import type { TortureScenario } from '../scenario.ts'
import { cutStores, killPeers } from './stores.ts'

export const powerLoss: TortureScenario = {
  name: 'power-loss',
  summary: 'Postgres dies, and what it had written without fsync is gone',
  obstacle: powerObstacle,
  alone: async () => {
    const disk = await mountLazyFolder()
    return {
      setting: { postgres: { dataDir: join(disk.path, 'postgres') } },
      place: disk.path,
      end: async () => disk.unmount(),
    }
  },
  strike: async (stage, fault) => {
    await stage.acks(50)
    fault.begins()
    await stage.postgres.killAll()
    await cutPower(stage.place!)
    await stage.postgres.start()
    fault.ends()
  },
}

export const storePowerLoss: TortureScenario = {
  name: 'store-power-loss',
  summary: 'a sender and a recipient die, and what their file stores had written without fsync is gone',
  obstacle: powerObstacle,
  alone: async () => {
    const disk = await mountLazyFolder()
    const casts = [
      { peers: 6, isWriting: true, sleepers: 1 },
      { peers: 4, isWriting: false, sleepers: 0 },
    ]
    return { setting: { casts }, place: disk.path, end: () => killPeers().then(disk.unmount) }
  },
  strike: cutStores,
}
