import { type Bus, MemoryHub } from '@sealpost/bus'
import type { GroupId, MeshId, ShardId } from '@sealpost/std'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { sharedBus } from '../shards/bus.ts'
import { SpaceHints } from './space-requests.ts'

const MESH = '1a'.repeat(16) as MeshId
const GROUP = '2a'.repeat(16) as GroupId

let buses: [Bus, Bus]
let here: SpaceHints
let there: SpaceHints
beforeEach(() => {
  const hub = new MemoryHub()
  buses = [sharedBus(hub.join('0a'.repeat(16) as ShardId)), sharedBus(hub.join('0b'.repeat(16) as ShardId))]
  here = new SpaceHints(buses[0])
  there = new SpaceHints(buses[1])
})
afterEach(() => Promise.all(buses.map((bus) => bus.close())))

/** Runs `act`. Resolves once a follower of this space wakes. */
function woken(space: MeshId | GroupId, act: () => void): Promise<void> {
  return new Promise((resolve) => {
    let isActing = false
    const end = here.follow(MESH, space, () => {
      if (!isActing) return
      end()
      resolve()
    })
    queueMicrotask(() => {
      isActing = true
      act()
    })
  })
}

test('a follower of a space is woken by events here and on other shards', async () => {
  await woken(MESH, () => here.happened(MESH, MESH))
  await woken(GROUP, () => there.happened(MESH, GROUP))
})

test('a follower of one space is not woken by another space, nor after it has unfollowed', () => {
  const heard: string[] = []
  const end = here.follow(MESH, GROUP, () => heard.push('group'))
  here.follow(MESH, MESH, () => heard.push('mesh'))
  here.happened(MESH, MESH)
  here.happened(MESH, GROUP)
  end()
  end()
  here.happened(MESH, GROUP)
  expect(heard).toEqual(['mesh', 'group'])
})

test('a mesh with two followers stays followed until both have unfollowed', async () => {
  const calls: string[] = []
  const bus = sharedBus({
    ...buses[0],
    counters: buses[0].counters,
    follow: (meshId) => calls.push(`follow ${meshId}`),
    unfollow: (meshId) => calls.push(`unfollow ${meshId}`),
  } as Bus)
  const spaceHints = new SpaceHints({ ...bus, subscribe: () => undefined })
  const end = spaceHints.follow(MESH, MESH, () => undefined)
  bus.follow(MESH)
  spaceHints.follow(MESH, GROUP, () => undefined)()
  end()
  bus.follow(MESH)
  bus.unfollow(MESH)
  expect(calls).toEqual([`follow ${MESH}`])
  bus.unfollow(MESH)
  expect(calls).toEqual([`follow ${MESH}`, `unfollow ${MESH}`])
})
