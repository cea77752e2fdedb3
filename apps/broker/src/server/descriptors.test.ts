import { expect, test } from 'vitest'
import { openLog } from '../telemetry/log.ts'
import { DESCRIPTORS_FREE_MIN, DESCRIPTORS_RESERVED, Descriptors } from './overload.ts'

/** A process whose limit and port the test controls. */
class Machine {
  free: number
  isListening = true
  canListen = true
  readonly descriptors: Descriptors

  constructor(free: number) {
    this.free = free
    const port = {
      pause: () => {
        this.isListening = false
      },
      resume: () => {
        if (!this.canListen) throw new Error('taken')
        this.isListening = true
      },
      closeIdle: () => undefined,
    }
    const opener = {
      open: () => {
        if (this.free === 0) throw new Error('EMFILE')
        this.free -= 1
        return 0
      },
      close: () => {
        this.free += 1
      },
    }
    this.descriptors = new Descriptors(port, openLog('silent'), opener)
  }

  look(free = this.free) {
    this.free = free
    this.descriptors.look()
    return this.descriptors.state
  }
}

test('the reserve is held while the port is open, and released while it is closed', () => {
  const machine = new Machine(DESCRIPTORS_RESERVED + 100)
  expect(machine.look()).toBe('free')
  expect(machine.free).toBe(100)
  expect(machine.look(DESCRIPTORS_FREE_MIN - 1)).toBe('few')
  expect(machine.look(0)).toBe('none')
  expect(machine).toMatchObject({ free: DESCRIPTORS_RESERVED, isListening: false })
})

test('the port reopens only if the reserve and further descriptors are free', () => {
  const machine = new Machine(DESCRIPTORS_RESERVED)
  expect(machine.look()).toBe('none')
  expect(machine.look(DESCRIPTORS_RESERVED + DESCRIPTORS_FREE_MIN - 1)).toBe('none')
  expect(machine.free).toBe(DESCRIPTORS_RESERVED + DESCRIPTORS_FREE_MIN - 1)
  expect(machine.look(DESCRIPTORS_RESERVED + DESCRIPTORS_FREE_MIN)).toBe('free')
  expect(machine).toMatchObject({ free: DESCRIPTORS_FREE_MIN, isListening: true })
})

test('if another process takes the port meanwhile, each check retries it and holds no descriptors', () => {
  const machine = new Machine(DESCRIPTORS_RESERVED)
  machine.look()
  machine.canListen = false
  expect(machine.look(200)).toBe('none')
  expect(machine.free).toBe(200)
  machine.canListen = true
  expect(machine.look()).toBe('free')
})

test('stopping releases the reserve', () => {
  const machine = new Machine(DESCRIPTORS_RESERVED + 100)
  machine.descriptors.stop()
  expect(machine.free).toBe(DESCRIPTORS_RESERVED + 100)
})
