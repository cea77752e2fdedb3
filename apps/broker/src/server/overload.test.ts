import { expect, test } from 'vitest'
import { LOOK_EVERY_MS, Overload } from './overload.ts'

class Machine {
  nowMs = 0
  memory = 10
  garbage = 0
  statements = 0
  collections = 0
  readonly overload = new Overload(
    { lagMsMax: 500, memoryBytesMax: 100, statementsMax: 20 },
    {
      nowMs: () => this.nowMs,
      memoryBytes: () => this.memory + this.garbage,
      collect: () => {
        this.collections += 1
        this.garbage = 0
      },
      statementsWaiting: () => this.statements,
    },
  )

  look(times: number, lateMs = 0) {
    for (let i = 0; i < times; i++) {
      this.nowMs += LOOK_EVERY_MS + lateMs
      this.overload.look()
    }
    return this.overload.reason
  }
}

test('a single long pause is not an overload, and a persistently late event loop is', () => {
  const machine = new Machine()
  expect(machine.look(1, 60_000)).toBeNull()
  expect(machine.look(1)).toBeNull()
  expect(machine.look(3, 501)).toBeNull()
  expect(machine.look(1, 501)).toBe('event_loop')
  expect(machine.overload.lagMs).toBe(501)
})

test('an overload ends after a calm second, not after the first good measurement', () => {
  const machine = new Machine()
  machine.look(4, 501)
  expect(machine.look(3)).toBe('event_loop')
  expect(machine.look(1)).toBeNull()
})

test('garbage is collected before anybody is refused', () => {
  const machine = new Machine()
  machine.garbage = 1000
  expect(machine.look(1)).toBeNull()
  expect(machine.collections).toBe(1)
})

test('memory that stays high is an overload, and is not collected at every measurement', () => {
  const machine = new Machine()
  machine.memory = 101
  expect(machine.look(10)).toBe('memory')
  expect(machine.collections).toBe(1)
  machine.memory = 100
  expect(machine.look(4)).toBeNull()
})

test('too many statements that wait for a connection are an overload', () => {
  const machine = new Machine()
  machine.statements = 20
  expect(machine.look(1)).toBeNull()
  machine.statements = 21
  expect(machine.look(1)).toBe('statements')
})
