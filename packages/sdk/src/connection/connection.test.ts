import { type MeshId, type Millis, type PeerKey, seededRandom } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import { HEARTBEAT_MS, HELLO, World } from '../test/connection.ts'
import { fakeProof, isFakeClientSignature } from '../test/fake-crypto.ts'
import { BACKOFF_MAX_MS, BRIEF_MAX_MS, backoffMs, putOffMs } from './timing.ts'

describe('handshake', () => {
  test('the client signs for the dialled address and goes live after the proof of the pinned key', () => {
    const world = new World()
    world.goLive()
    expect(isFakeClientSignature(world.transcript(), world.auth!.signature)).toBe(true)
    expect(world.log).toEqual(['dial 1', 'auth', 'live'])
    expect(world.connection.state.name).toBe('live')
  })

  test.each([
    ['another authority', { authority: 'evil.example:443' }],
    ['another broker key', { brokerKey: 'c'.repeat(64) as PeerKey }],
    ['another mesh', { meshId: '2'.repeat(32) as MeshId }],
  ])('a proof for %s ends the connection for good', (_, overrides) => {
    const world = new World()
    world.greet()
    const proof = fakeProof(world.transcript(overrides), world.auth!.signature)
    world.connection.received(1, world.welcome(proof), 0)
    expect(world.error?.code).toBe('wrong_broker')
    expect(world.log).toEqual(['dial 1', 'auth', 'close 1', 'ended'])
    expect(world.connection.wakeAtMs).toBe(Infinity)
  })

  test('the client does not sign for a greeting with another key than the pinned one', () => {
    const world = new World()
    world.connection.start(0)
    world.connection.received(1, { ...HELLO, brokerKey: 'c'.repeat(64) as PeerKey }, 0)
    expect(world.error?.code).toBe('wrong_broker')
    expect(world.auth).toBeUndefined()
  })

  test('the connection ends if there is no common version', () => {
    const world = new World()
    world.connection.start(0)
    world.connection.received(1, { ...HELLO, versions: [9] }, 0)
    expect(world.error?.code).toBe('version_unsupported')
  })

  test('frames of a broker that has not proven itself are not passed on', () => {
    const world = new World()
    world.greet()
    const ack = { type: 'ack', items: [] } as const
    expect(world.connection.received(1, { ...ack, items: [] }, 0)).toBeNull()
    expect(world.connection.state.name).toBe('waiting')
  })

  test('a silent broker is given up', () => {
    const world = new World()
    world.connection.start(0)
    world.connection.tick(world.connection.wakeAtMs)
    expect(world.log).toEqual(['dial 1', 'hang up 1', 'lost connection_lost'])
  })

  test('events of an older dial are ignored', () => {
    const world = new World()
    world.goLive()
    world.connection.closed(1, 1006, 0)
    world.connection.tick(world.connection.wakeAtMs)
    expect(world.connection.dialNo).toBe(2)
    world.connection.opened(1)
    world.connection.closed(1, 1006, 0)
    expect(world.connection.state.name).toBe('connecting')
  })
})

describe('a newer session of the same key', () => {
  const superseded = { type: 'refused', code: 'superseded', retryAfterMs: 0, reason: '' } as const
  /** Returns a connection in its second dial's session; its first proof received no reply. */
  const afterLostHandshake = () => {
    const world = new World()
    world.greet()
    world.connection.closed(1, 1006, 0)
    world.connection.tick(world.connection.wakeAtMs)
    world.connection.received(2, HELLO, 0)
    world.connection.received(2, world.welcome(), 0)
    return world
  }

  test('is not final if it may come from an earlier lost handshake', () => {
    const world = afterLostHandshake()
    world.connection.received(2, superseded, 29_000)
    expect(world.log.at(-1)).toBe('lost superseded')
    world.connection.tick(world.connection.wakeAtMs)
    world.connection.received(3, HELLO, 30_000)
    world.connection.received(3, world.welcome(), 30_000)
    world.connection.received(3, superseded, 30_000)
    expect(world.error?.code).toBe('superseded')
  })

  test('is final half a minute later', () => {
    const world = afterLostHandshake()
    world.connection.received(2, superseded, 30_000)
    expect(world.error?.code).toBe('superseded')
  })

  test('is final if every handshake got a reply', () => {
    const world = new World()
    world.goLive()
    world.connection.closed(1, 1006, 0)
    world.connection.tick(world.connection.wakeAtMs)
    world.connection.received(2, HELLO, 0)
    world.connection.received(2, { ...superseded, code: 'try_later' }, 0)
    world.connection.tick(world.connection.wakeAtMs)
    world.connection.received(3, HELLO, 0)
    world.connection.received(3, world.welcome(), 0)
    world.connection.received(3, superseded, 0)
    expect(world.error?.code).toBe('superseded')
  })
})

describe('moving', () => {
  const HOME = 'wss://home.example'
  const NONE = new Uint8Array()
  const moved = (world: World, authority = 'broker.example:443') => {
    const proof = fakeProof(world.transcript({ authority }), world.auth!.signature)
    world.connection.received(world.connection.dialNo, { type: 'moved', url: HOME, certificate: NONE, proof }, 0)
  }
  const answers = ({ connection }: World) => connection.received(connection.dialNo, HELLO, 0)

  test('the home is dialled at once, and the client signs for its address', () => {
    const world = new World()
    world.greet()
    moved(world)
    answers(world)
    const proof = fakeProof(world.transcript({ authority: 'home.example:443' }), world.auth!.signature)
    world.connection.received(2, world.welcome(proof), 0)
    expect(world.log).toEqual(['dial 1', 'auth', 'moved', 'hang up 1', 'dial 2', 'auth', 'live'])
    expect(world.urls).toEqual(['wss://broker.example', HOME])
  })

  test('a redirect from a broker that has not proven itself is ignored', () => {
    const world = new World()
    world.greet()
    moved(world, 'other.example:443')
    expect(world.error?.code).toBe('wrong_broker')
    expect(world.urls).toEqual(['wss://broker.example'])
    const early = new World()
    early.connection.start(0)
    early.connection.received(1, { type: 'moved', url: HOME, certificate: NONE, proof: new Uint8Array(64) }, 0)
    expect(early.connection.state.name).toBe('waiting')
  })

  test('if the home does not reply, the client asks the broker to serve it', () => {
    const world = new World()
    world.greet()
    moved(world)
    world.connection.closed(2, 1006, 0)
    expect(world.retryInMs).toBeLessThan(500)
    world.connection.tick(world.connection.wakeAtMs)
    answers(world)
    expect(world.auth!.capabilities).toEqual(['home_unreachable'])
    world.connection.received(3, world.welcome(), 0)
    expect(world.connection.state.name).toBe('live')
    expect(world.log).toContain('home_unreachable')
  })

  test('a broker of another cell that cannot serve the peer is asked again for the home', () => {
    const world = new World()
    world.greet()
    moved(world)
    world.connection.closed(2, 1006, 0)
    world.connection.tick(world.connection.wakeAtMs)
    answers(world)
    world.connection.received(3, { type: 'refused', code: 'try_later', retryAfterMs: 2000, reason: '' }, 0)
    world.connection.tick(world.connection.wakeAtMs)
    answers(world)
    expect(world.auth!.capabilities).toEqual([])
  })

  test('a broker that redirects despite the request is asked again after a pause', () => {
    const world = new World()
    world.greet()
    moved(world)
    world.connection.closed(2, 1006, 0)
    world.connection.tick(world.connection.wakeAtMs)
    answers(world)
    moved(world)
    expect(world.connection.state.name).toBe('waiting')
    expect(world.log.at(-1)).toBe('lost moved')
  })

  test('a redirect within a session is an unexpected frame', () => {
    const world = new World()
    world.goLive()
    moved(world)
    expect(world.log.at(-1)).toBe('lost frame_unexpected')
  })

  test('a shard that shuts down is followed by the announced fallback, at the announced time', () => {
    const world = new World()
    world.goLive()
    world.connection.received(1, { type: 'shards', urls: [HOME], cell: [] }, 0)
    world.refuse('restarting', 100)
    expect(world.retryInMs).toBe(100)
    world.connection.tick(world.connection.wakeAtMs)
    expect(world.urls.at(-1)).toBe(HOME)
  })

  test('a broken session is resumed at the same shard first, and then elsewhere', () => {
    const world = new World()
    world.goLive()
    world.connection.received(1, { type: 'shards', urls: [HOME], cell: [] }, 0)
    for (let dial = 1; dial <= 2; dial++) {
      world.connection.closed(dial, 1006, 0)
      world.connection.tick(world.connection.wakeAtMs)
    }
    expect(world.urls).toEqual(['wss://broker.example', 'wss://broker.example', HOME])
  })

  test('a redirected long session resumes at once; a short one after a pause', () => {
    const world = new World()
    world.goLive()
    world.refuse('moved', 0, 5_000)
    expect(world.retryInMs).toBe(0)
    const short = new World()
    short.goLive()
    short.refuse('moved', 0, 4_000)
    expect(short.retryInMs).toBeGreaterThan(0)
  })
})

describe('reconnecting', () => {
  test.each([
    ['after failures', backoffMs, (times: number) => (times < 24 ? BRIEF_MAX_MS : BACKOFF_MAX_MS)],
    ['after deferrals', putOffMs, () => BACKOFF_MAX_MS],
  ])('full jitter begins below 0.5 s and doubles up to its bound: %s', (_, waitMs, bound) => {
    const random = seededRandom(3).next
    for (let times = 0; times < 40; times++) {
      const most = Math.min(bound(times), 500 * 2 ** times)
      const drawn = Array.from({ length: 200 }, () => waitMs(times, random))
      expect(Math.min(...drawn)).toBeGreaterThanOrEqual(0)
      expect(Math.max(...drawn)).toBeLessThan(most)
      expect(Math.max(...drawn)).toBeGreaterThan(most / 2)
    }
  })

  test.each([
    ['disconnected together', backoffMs, 300],
    ['deferred together', putOffMs, 100],
  ])('10,000 peers reconnect at different times: %s', (_, waitMs, most) => {
    const random = seededRandom(4).next
    const perSlot = new Map<number, number>()
    for (let i = 0; i < 10_000; i++) {
      const slot = Math.floor(waitMs(6, random) / 100)
      perSlot.set(slot, (perSlot.get(slot) ?? 0) + 1)
    }
    expect(Math.max(...perSlot.values())).toBeLessThan(most)
  })

  test('a disconnected peer reconnects within 5 s of a broker that was down for a few seconds', () => {
    for (let seed = 1; seed <= 200; seed++) {
      const world = new World(seededRandom(seed).next)
      const backAtMs = 100 * (seed % 100)
      world.connection.start(0)
      let dialAtMs = 0
      while (dialAtMs < backAtMs) {
        world.connection.closed(world.connection.dialNo, 1006, dialAtMs)
        dialAtMs = world.connection.wakeAtMs
        world.connection.tick(dialAtMs)
      }
      expect(dialAtMs - backAtMs).toBeLessThan(BRIEF_MAX_MS)
    }
  })

  test('failures accumulate until a session lasts long enough', () => {
    const world = new World()
    world.connection.start(0)
    const waits: Millis[] = []
    for (let i = 0; i < 12; i++) {
      world.connection.closed(world.connection.dialNo, 1006, 0)
      waits.push(world.retryInMs)
      world.connection.tick(world.connection.wakeAtMs)
    }
    expect(Math.max(...waits)).toBeGreaterThan(2_000)
    world.connection.received(world.connection.dialNo, HELLO, 0)
    world.connection.received(world.connection.dialNo, world.welcome(), 0)
    world.connection.closed(world.connection.dialNo, 1006, 5_000)
    expect(world.retryInMs).toBeLessThan(500)
  })

  test('a retry-after of the broker is honoured within bounds, plus a random pause', () => {
    for (const [hint, wait] of [
      [42_000, 42_000],
      [1, 1],
      [0xffffffff, 600_000],
    ] as const) {
      const world = new World()
      world.goLive()
      world.refuse('restarting', hint)
      expect(world.retryInMs).toBeGreaterThan(wait)
      expect(world.retryInMs).toBeLessThan(wait + 500)
    }
  })

  test('peers deferred together with one retry-after reconnect at different times, further apart after each deferral', () => {
    const random = seededRandom(5).next
    const waitsOf = (putOffs: number) =>
      Array.from({ length: 200 }, () => {
        const world = new World(random)
        world.goLive()
        for (let i = 0; i < putOffs; i++) {
          world.refuse('try_later', 2_000)
          world.connection.tick(world.connection.wakeAtMs)
        }
        return world.retryInMs
      })
    const firsts = waitsOf(1)
    const fourths = waitsOf(4)
    expect(new Set(firsts).size).toBe(200)
    expect(Math.min(...firsts, ...fourths)).toBeGreaterThanOrEqual(2_000)
    expect(Math.max(...firsts)).toBeLessThan(2_500)
    expect(Math.max(...fourths)).toBeGreaterThan(5_000)
  })

  test('failures without a reply do not lengthen the wait of a peer that is then deferred', () => {
    const world = new World()
    world.connection.start(0)
    for (let i = 0; i < 8; i++) {
      world.connection.closed(world.connection.dialNo, 1006, 0)
      world.connection.tick(world.connection.wakeAtMs)
    }
    world.refuse('try_later', 2_000)
    expect(world.retryInMs).toBeLessThan(2_500)
  })

  test('the retry-after of `goaway` is honoured when the broker then closes', () => {
    const world = new World()
    world.goLive()
    const goaway = { type: 'goaway', retryAfterMs: 3_000 } as const
    expect(world.connection.received(1, goaway, 0)).toBe(goaway)
    world.connection.closed(1, 1012, 10)
    expect(world.retryInMs).toBeGreaterThanOrEqual(3_000)
    expect(world.retryInMs).toBeLessThan(3_500)
  })

  test('after `goaway` the client closes if the broker does not', () => {
    const world = new World()
    world.goLive()
    world.connection.received(1, { type: 'goaway', retryAfterMs: 3_000 }, 0)
    world.connection.tick(world.connection.wakeAtMs)
    expect(world.log.slice(-2)).toEqual(['hang up 1', 'lost restarting'])
  })

  test.each([
    'auth_failed',
    'revoked',
    'version_unsupported',
    'superseded',
    'frame_malformed',
    'frame_unexpected',
    'wrong_form',
  ] as const)('%s is final', (code) => {
    const world = new World()
    world.goLive()
    world.refuse(code)
    expect(world.error).toMatchObject({ code, isRetryable: false })
    expect(world.connection.wakeAtMs).toBe(Infinity)
  })

  test.each(['auth_timeout', 'slow_consumer', 'internal', 'restarting', 'try_later', 'rate_exceeded'] as const)(
    '%s is not final',
    (code) => {
      const world = new World()
      world.goLive()
      world.refuse(code)
      expect(world.log.at(-1)).toBe(`lost ${code}`)
    },
  )

  test('a close code is reported if no frame gave a reason', () => {
    for (const [number, code] of [
      [4403, 'revoked'],
      [4409, 'superseded'],
      [4401, 'auth_failed'],
    ] as const) {
      const world = new World()
      world.goLive()
      world.connection.closed(1, number, 0)
      expect(world.error?.code).toBe(code)
    }
  })

  test('a connection that the client gives up is not closed as if the application had closed the peer', () => {
    const world = new World()
    world.goLive()
    world.connection.malformed(1, 0)
    expect(world.log.slice(-2)).toEqual(['hang up 1', 'lost frame_malformed'])
  })

  test('closing by the client ends the connection without an error', () => {
    const world = new World()
    world.goLive()
    world.connection.close()
    expect(world.error).toBeNull()
    expect(world.log.slice(-2)).toEqual(['close 1', 'ended'])
  })
})

describe('liveness', () => {
  test('the client pings after one heartbeat of silence, and gives up within 5 s', () => {
    const world = new World()
    world.goLive()
    expect(world.connection.wakeAtMs).toBe(HEARTBEAT_MS)
    world.connection.tick(HEARTBEAT_MS)
    expect(world.log.at(-1)).toBe('ping')
    world.connection.tick(HEARTBEAT_MS + 4_500)
    expect(world.connection.state.name).toBe('live')
    world.connection.tick(HEARTBEAT_MS + 4_750)
    expect(world.log.at(-1)).toBe('lost heartbeat_missed')
  })

  test('any received frame restarts the timeout', () => {
    const world = new World()
    world.goLive()
    world.connection.tick(HEARTBEAT_MS)
    world.connection.received(1, { type: 'pong', ref: 1 }, HEARTBEAT_MS + 1)
    expect(world.connection.wakeAtMs).toBe(2 * HEARTBEAT_MS + 1)
  })

  test('a process that was asleep pings before it gives up', () => {
    const world = new World()
    world.goLive()
    world.connection.tick(100 * HEARTBEAT_MS)
    expect(world.connection.state.name).toBe('live')
    expect(world.log.at(-1)).toBe('ping')
  })
})
