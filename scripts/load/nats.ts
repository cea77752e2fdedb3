/** A NATS server of the test's own, on loopback and a free port. It ends with the test. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { OperatingError } from '@sealpost/std'
import type { Teardown } from '../lib/teardown.ts'

const WORDS = ['--addr', '127.0.0.1', '--port', '-1']
const LISTENING = /Listening for client connections on (\S+)/
const READY_WITHIN_MS = 10_000

/** @returns nats://host:port. @throws OperatingError `nats_not_started` */
export async function startNats(teardown: Teardown): Promise<string> {
  const program = Bun.which('nats-server')
  if (!program) throw failure('There is no nats-server on the PATH; NATS_URL may name a running one.')
  const child = spawn(program, WORDS, { stdio: ['ignore', 'ignore', 'pipe'], detached: true })
  const ended = once(child, 'exit')
  const end = async () => {
    child.kill()
    await ended
  }
  teardown.add({ end, kill: () => void child.kill('SIGKILL') })
  const listening = Promise.withResolvers<string>()
  createInterface({ input: child.stderr }).on('line', (line) => {
    const [, place] = LISTENING.exec(line) ?? []
    if (place) listening.resolve(`nats://${place}`)
  })
  const timer = setTimeout(() => listening.reject(failure('nats-server does not get ready.')), READY_WITHIN_MS)
  const died = ended.then(() => Promise.reject(failure('nats-server ended at its start.')))
  died.catch(() => undefined) // its later end is no failed start
  return Promise.race([listening.promise, died]).finally(() => clearTimeout(timer))
}

const failure = (sentence: string) => new OperatingError('nats_not_started', sentence)
