/** Tests `sealpost work` with real agents: scripts that a user could have written. */
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { Message, PresenceEntry } from '@sealpost/sdk'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { failureOf, jsonLinesOf, jsonOf, letIn, Machine, type Running, runHere } from './cli.ts'
import { Agent } from './mcp.ts'
import { crashWorkers, isClean, keyOf, newMember } from './work-crash.ts'

const EXAMPLE = join(import.meta.dirname, '../../../../docs/examples/work-agent.sh')

let machine: Machine
beforeAll(async () => {
  machine = await Machine.withBroker('bob', 'dora')
}, 120_000)
afterAll(() => machine[Symbol.asyncDispose]())

/** Starts a worker and waits until it receives messages. `words`: its options and its agent. */
async function work(words: readonly string[], env = {}, profile = 'bob'): Promise<Running> {
  const worker = machine.start(['work', '--json', '--profile', profile, ...words], env)
  await worker.until('it works', ({ stderr }) => stderr.includes('working as'))
  return worker
}

async function script(name: string, text: string): Promise<string> {
  const folder = join(machine.folder, 'bin')
  await mkdir(folder, { recursive: true })
  await writeFile(join(folder, name), `#!/bin/sh\n${text}\n`)
  await chmod(join(folder, name), 0o700)
  return join(folder, name)
}

describe('a turn', () => {
  test('replies with the output of the command', async () => {
    const worker = await work(['--count', '2', '--', 'tr', 'a-z', 'A-Z'])
    expect(await machine.run(['request', 'bob', 'hello'])).toMatchObject({ code: 0, stdout: 'HELLO\n' })
    expect((await machine.run(['send', 'bob', 'no request'])).code).toBe(0)
    const replied = await machine.run(['listen', '--count', '1', '--json'])
    expect(jsonLinesOf(replied)).toMatchObject([{ text: 'NO REQUEST', name: 'bob' }])
    const ended = await worker.ended()
    expect(ended.code).toBe(0)
    const turn = { outcome: 'replied', attempt: 1, isResumed: false }
    expect(jsonLinesOf(ended)).toMatchObject([turn, turn])
    const waited = jsonLinesOf(ended).map(({ waitedMs }) => waitedMs.toFixed(0))
    process.stdout.write(`from storage at the broker to the agent's start: ${waited.join(' and ')} ms\n`)
  })

  test('knows its sender, and gets no secret of the worker', async () => {
    const worker = await work(['--count', '1', '--', 'env'], { SECRET_TOKEN: 'hidden' })
    const { stdout } = await machine.run(['request', 'bob', 'who am I?'])
    const facts = ['SEALPOST_BATCH=1', 'SEALPOST_TURN_ATTEMPT=1', 'SEALPOST_TURN_RESUMED=', 'SEALPOST_FROM_NAME=alice']
    expect(stdout.split('\n')).toEqual(expect.arrayContaining(facts))
    expect(stdout).not.toContain('hidden')
    expect((await worker.ended()).code).toBe(0)
  })

  test('of a command finds the folder of its conversation again (docs/examples/work-agent.sh)', async () => {
    const worker = await work(['--count', '2', '--', EXAMPLE])
    const ask = () => machine.run(['request', 'bob', 'hello'])
    expect((await ask()).stdout).toBe('You have sent 1 lines in this conversation.\n')
    expect((await ask()).stdout).toBe('You have sent 2 lines in this conversation.\n')
    expect((await worker.ended()).code).toBe(0)
  })

  test('for several messages gets a line of JSON for each', async () => {
    await using sender = await newMember(machine, 'sender of a batch')
    const replies: number[] = []
    const all = Promise.withResolvers<void>()
    sender.onMessage((message) => {
      replies.push(Number(message.text()))
      if (replies.reduce((sum, lines) => sum + lines, 0) === 9) all.resolve()
    })
    const key = await keyOf(machine, 'bob')
    await Promise.all(Array.from({ length: 9 }, (_, i) => sender.send(key, `line\n${i}`)))
    const worker = await work(['--batch', '4', '--count', '9', '--', 'wc', '-l'])
    expect((await worker.ended()).code).toBe(0)
    await all.promise
    const messages = jsonLinesOf(worker).map(({ envelopeIds }) => envelopeIds.length)
    expect(messages).toEqual(replies)
  })

  test('gets the file of the message, and a reply that is too long for a message becomes a file', async () => {
    const [sent, folder] = [join(machine.folder, 'sent.txt'), join(machine.folder, 'received')]
    const long = 'a line of a long text\n'.repeat(5_000)
    await writeFile(sent, long)
    await mkdir(folder)
    const worker = await work(['--count', '1', '--', 'sh', '-c', 'cat "$SEALPOST_FILE"'])
    expect((await machine.run(['send', 'bob', 'upper case?', '--file', sent])).code).toBe(0)
    const [reply] = jsonLinesOf(await machine.run(['listen', '--count', '1', '--json', '--files', folder]))
    expect(await readFile(reply.file.path, 'utf8')).toBe(long)
    expect((await worker.ended()).code).toBe(0)
  })

  test('can be a job of a pool', async () => {
    expect((await machine.run(['pool', 'create', 'jobs', 'bob'])).code).toBe(0)
    const worker = await work(['--pool', 'jobs', '--count', '1', '--', 'tr', 'a-z', 'A-Z'])
    expect((await machine.run(['pool', 'send', 'jobs', 'do it'])).code).toBe(0)
    expect(jsonLinesOf(await machine.run(['listen', '--count', '1', '--json']))).toMatchObject([{ text: 'DO IT' }])
    expect((await worker.ended()).code).toBe(0)
  })

  test('of a message whose sender accepts no automatic replies prints its output', async () => {
    await using sender = await newMember(machine, 'sender without replies')
    const worker = await work(['--count', '1', '--', 'cat'])
    await sender.send(await keyOf(machine, 'bob'), 'only for you', { noAutoReply: true })
    const ended = await worker.ended()
    expect([ended.code, jsonLinesOf(ended).at(-1)]).toMatchObject([0, { reply: 'only for you' }])
  })

  test('shows others that the member works', async () => {
    const go = join(machine.folder, 'go-presence')
    const agent = await script('wait-presence.sh', `while [ ! -e ${go} ]; do sleep 0.05; done; echo done`)
    await using watcher = await newMember(machine, 'watcher')
    const key = await keyOf(machine, 'bob')
    const seen: string[] = []
    const news = new Set<() => void>()
    watcher.watchPresence((entry: PresenceEntry) => {
      if (entry.peer === key && entry.isOnline) seen.push(entry.availability)
      for (const tell of news) tell()
    })
    const until = async (availability: string) => {
      while (seen.at(-1) !== availability) await new Promise<void>((tell) => news.add(tell))
    }
    const worker = await work(['--', agent])
    await watcher.send(key, 'start')
    await until('working')
    await writeFile(go, '')
    await until('idle')
    expect((await worker.interrupt()).code).toBe(130)
  })
})

describe('an agent that fails', () => {
  test('gets a limited number of attempts, and then the sender gets an error reply', async () => {
    const worker = await work(['--attempts', '2', '--count', '1', '--', 'sh', '-c', 'exit 3'])
    const asked = await machine.run(['request', 'bob', 'please', '--json'])
    expect(failureOf(asked)).toEqual([1, 'answered_error'])
    expect(asked.stderr).toContain('The agent failed after 2 attempts: it exited with code 3.')
    const ended = await worker.ended()
    expect(jsonLinesOf(ended)).toMatchObject([
      { outcome: 'failed', attempt: 1, next: 'retry' },
      { outcome: 'failed', attempt: 2, next: 'reject' },
    ])
    expect(ended.stderr).toContain('rejected (agent_failed)')
  })

  test('or takes too long is ended, with its children', async () => {
    const pids = join(machine.folder, 'pids')
    const agent = await script('slow.sh', `sleep 300 & echo $! > ${pids}; wait`)
    const worker = await work(['--timeout', '1s', '--attempts', '1', '--count', '1', '--', agent])
    const asked = await machine.run(['request', 'bob', 'please'])
    expect(asked.stderr).toContain('it ran longer than 1 s')
    expect((await worker.ended()).code).toBe(0)
    await untilGone(Number(await readFile(pids, 'utf8')))
  })
})

describe('a worker that ends', () => {
  test('on Ctrl-C finishes the running turn and starts no other', async () => {
    const go = join(machine.folder, 'go-end')
    const agent = await script('wait-end.sh', `echo begun >&2; while [ ! -e ${go} ]; do sleep 0.05; done; echo late`)
    const worker = await work(['--', agent])
    const asked = machine.start(['request', 'bob', 'first', '--timeout', '100s'])
    await worker.until('the turn begins', ({ stderr }) => stderr.includes('begun'))
    expect((await machine.run(['send', 'bob', 'second'])).code).toBe(0)
    worker.child.kill('SIGINT')
    await worker.until('it waits', ({ stderr }) => stderr.includes('waiting for the running turns'))
    await writeFile(go, '')
    expect(await asked.ended()).toMatchObject({ code: 0, stdout: 'late\n' })
    expect((await worker.ended()).code).toBe(130)
    expect(jsonLinesOf(worker)).toHaveLength(1)
    const next = await work(['--count', '1', '--', agent])
    expect((await next.ended()).code).toBe(0)
    expect((await machine.run(['listen', '--count', '1'])).stdout).toContain('late')
  })

  test('on a second Ctrl-C kills the agent; the next worker ends what is left and reports the cut turn', async () => {
    const pids = join(machine.folder, 'pids-gail')
    const left = 'sleep 300 </dev/null >/dev/null 2>&1 & echo $!'
    const agent = await script('left.sh', `setsid sh -c '${left}' > ${pids}; echo begun >&2; exec sleep 300`)
    const worker = await work(['--', agent])
    const asked = machine.start(['request', 'bob', 'please', '--timeout', '100s'])
    await worker.until('the turn begins', ({ stderr }) => stderr.includes('begun'))
    for (; !worker.isOver; await delay(100)) worker.child.kill('SIGINT')
    const next = await work(['--count', '1', '--', 'cat'])
    const ended = await next.ended()
    expect(jsonLinesOf(ended)).toMatchObject([{ outcome: 'cut', attempt: 1, next: 'reject' }])
    if (process.platform === 'linux') expect(jsonLinesOf(ended)[0].reason).toContain('still running')
    await untilGone(Number(await readFile(pids, 'utf8')))
    expect((await asked.ended()).stderr).toContain('The agent was interrupted')
  })

  test('or is killed with its agents at random loses, repeats and hides nothing', async () => {
    const report = await crashWorkers({ seed: 5, messages: 12, workers: 2 }, machine)
    process.stdout.write(`${JSON.stringify(report)}\n`)
    expect(report).toSatisfy(isClean)
    expect(report.turns).toBeGreaterThanOrEqual(12)
    expect(report.workersKilled).toBeGreaterThan(0)
  }, 240_000)
})

describe('several workers of a profile', () => {
  beforeAll(() => letIn(machine, 'erin'))

  /** An agent that waits until the file exists, unless its turn is resumed. */
  const waiting = (name: string, go: string) =>
    script(
      name,
      `echo begun >&2; [ -n "$SEALPOST_TURN_RESUMED" ] || while [ ! -e ${go} ]; do sleep 0.05; done; echo "$(cat) $1"`,
    )
  const hasBegun = ({ stderr }: { readonly stderr: string }) => stderr.includes('begun')

  test('share the messages to the member, and each has an address', async () => {
    const go = join(machine.folder, 'go-share')
    const agent = await waiting('share.sh', go)
    const reviewer = await work(['--as', 'reviewer', '--', agent, 'by the reviewer'], {}, 'erin')
    const other = await work(['--', agent, 'by the other'], {}, 'erin')
    await using sender = await newMember(machine, 'sender to workers')
    const key = await keyOf(machine, 'erin')
    const replies: Message[] = []
    const two = Promise.withResolvers<void>()
    sender.onMessage((message) => {
      if (replies.push(message) === 2) two.resolve()
    })
    const send = (i: number) => sender.send(key, `message ${i}`, { thread: `${i}`.padStart(32, '0') })
    for (const i of [0, 1]) await send(i)
    for (const worker of [reviewer, other]) await worker.until('its turn begins', hasBegun)
    await using mcp = await Agent.start(machine, ['--profile', 'erin'])
    await send(2)
    const read = await mcp.readOne()
    expect(read.text).toBe('message 2')
    await mcp.call('settle_message', { messageIds: [read.messageId] })
    await writeFile(go, '')
    await two.promise
    expect(replies.map((reply) => reply.sender)).toEqual([key, key])
    expect(replies.map((reply) => reply.text().replace(/message \d/, '')).sort()).toEqual([
      ' by the other\n',
      ' by the reviewer\n',
    ])
    expect((await machine.run(['request', 'erin/reviewer', 'you?'])).stdout).toBe('you? by the reviewer\n')
    for (const worker of [reviewer, other]) expect((await worker.interrupt()).code).toBe(130)
    expect(reviewer.stderr).toContain('working as erin/reviewer;')
  })

  test('report the turn of one that is killed, and resume it once', async () => {
    const agent = await waiting('killed.sh', join(machine.folder, 'never'))
    const options = ['--after-cut', 'resume', '--', agent]
    const workers = [await work(options, {}, 'erin'), await work(options, {}, 'erin')]
    const asked = machine.start(['request', 'erin', 'please', '--timeout', '100s', '--json'])
    const [killed, survivor] = await Promise.race(
      [workers, workers.toReversed()].map(async ([first, second]) => {
        await first!.until('the turn begins', hasBegun)
        return [first!, second!] as const
      }),
    )
    killed.child.kill('SIGKILL')
    expect(jsonOf(await asked.ended())).toMatchObject({ text: 'please \n' })
    await survivor.interrupt()
    expect(jsonLinesOf(survivor)).toMatchObject([
      { outcome: 'cut', attempt: 1, next: 'resume' },
      { outcome: 'replied', attempt: 2, isResumed: true },
    ])
  })

  test('report the turn of a named one, whose message waits for the next process of this name', async () => {
    const agent = await waiting('named.sh', join(machine.folder, 'never'))
    const named = await work(['--as', 'builder', '--', agent], {}, 'erin')
    const other = await work(['--', 'cat'], {}, 'erin')
    const asked = machine.start(['request', 'erin/builder', 'please', '--timeout', '100s'])
    await named.until('the turn begins', hasBegun)
    named.child.kill('SIGKILL')
    await other.until('it reports the turn', ({ stdout }) => stdout.includes('"cut"'))
    const next = await work(['--as', 'builder', '--count', '1', '--', agent], {}, 'erin')
    expect((await asked.ended()).stderr).toContain('The agent was interrupted')
    expect((await next.ended()).stderr).toContain('rejected (turn_cut)')
    await other.interrupt()
    expect([...jsonLinesOf(next), ...jsonLinesOf(other)]).toMatchObject([{ outcome: 'cut', attempt: 1 }])
  })

  test('of which one claims a name that another has is refused', async () => {
    const named = await work(['--as', 'reviewer', '--', 'cat'], {}, 'erin')
    const second = await machine.run(['work', '--as', 'Reviewer', '--profile', 'erin', '--json', '--', 'cat'])
    expect(failureOf(second)).toEqual([5, 'session_in_use'])
    await named.interrupt()
  })
})

describe('a budget', () => {
  test('returns messages to the queue, and explains this to the sender once', async () => {
    await using sender = await newMember(machine, 'sender over budget')
    const replies: Message[] = []
    const two = Promise.withResolvers<void>()
    sender.onMessage((message) => {
      replies.push(message)
      if (replies.length === 2) two.resolve()
    })
    const key = await keyOf(machine, 'bob')
    const worker = await work(['--turns-per-hour', '1', '--', 'cat'])
    for (const text of ['one', 'two', 'three', 'four']) await sender.send(key, text)
    await worker.until('it returns all', ({ stderr }) => stderr.match(/returned to the queue/g)?.length === 3)
    await two.promise
    await worker.interrupt()
    expect(replies.map(({ isError, noAutoReply }) => [isError, noAutoReply])).toEqual([
      [false, false],
      [true, true],
    ])
    expect(replies[1]!.text()).toMatch(
      /^Your budget for this agent is exhausted until .* Your message waits until then\.$/,
    )
    expect(jsonLinesOf(worker)).toHaveLength(1)
  })

  test('counts the cost that the agent reports, also after a restart, and rejects messages if asked to', async () => {
    const result = { type: 'result', is_error: false, result: 'paid', total_cost_usd: 2 }
    await script('claude', `cat > /dev/null; echo '${JSON.stringify(result)}'`)
    const env = { PATH: `${join(machine.folder, 'bin')}:${machine.environment.PATH}` }
    const options = ['--money-per-day', '2', '--over-budget', 'reject', '--count', '1', '--agent', 'claude']
    const first = await work(options, env)
    expect(await machine.run(['request', 'bob', 'x'])).toMatchObject({ code: 0, stdout: 'paid\n' })
    expect(jsonLinesOf(await first.ended())).toMatchObject([{ cost: 2 }])
    const second = await work(options, env)
    const asked = await machine.run(['request', 'bob', 'y'])
    expect(asked.stderr).toMatch(/Your budget for this agent is exhausted until .* Your message was rejected\./)
    expect((await second.ended()).stderr).toContain('rejected (over_budget)')
  })
})

test('Claude Code gets a conversation for each sender, which is resumed, and replaced if it no longer exists', async () => {
  const calls = join(machine.folder, 'calls')
  const lost = join(machine.folder, 'lost')
  const result = `{"type":"result","is_error":false,"result":"ok","session_id":"'"$session"'","total_cost_usd":0.01}`
  await script(
    'claude',
    `echo "$*" >> ${calls}; cat > ${calls}-stdin
for session; do :; done
if [ -e ${lost} ]; then rm ${lost}; echo "No conversation found with session ID: $session" >&2; exit 1; fi
echo '${result}'`,
  )
  const env = { PATH: `${join(machine.folder, 'bin')}:${machine.environment.PATH}` }
  const worker = await work(['--count', '3', '--attempts', '1', '--agent', 'claude'], env)
  const ask = () => machine.run(['request', 'bob', 'hello', '--profile', 'dora'])
  expect(await ask()).toMatchObject({ stdout: 'ok\n' })
  expect(await ask()).toMatchObject({ stdout: 'ok\n' })
  await writeFile(lost, '')
  expect(await ask()).toMatchObject({ stdout: 'ok\n' })
  expect((await worker.ended()).code).toBe(0)
  const lines = (await readFile(calls, 'utf8')).trim().split('\n')
  const [first, second, third, fourth] = lines.map((line) => /--(session-id|resume) ([0-9a-f-]+)$/.exec(line)!.slice(1))
  expect([first![0], second![0], third![0], fourth![0]]).toEqual(['session-id', 'resume', 'resume', 'session-id'])
  expect([second![1], third![1]]).toEqual([first![1], first![1]])
  expect(fourth![1]).not.toBe(first![1])
  expect(await readFile(`${calls}-stdin`, 'utf8')).toMatch(
    /verified key [0-9a-f]{64}[\s\S]*BEGIN PEER TEXT .*\n\| hello\nEND/,
  )
})

test('two workers that reply to each other stop after a number of hops', async () => {
  const workers = [await work(['--max-hops', '4', '--', 'echo', 'and you?'])]
  workers.push(await work(['--max-hops', '4', '--', 'echo', 'and you?'], {}, 'dora'))
  expect((await machine.run(['send', 'bob', 'how are you?', '--profile', 'dora'])).code).toBe(0)
  await workers[0]!.until('it stops', ({ stderr }) => stderr.includes('rejected (too_many_hops)'))
  for (const worker of workers) await worker.interrupt()
  expect(workers.flatMap((worker) => jsonLinesOf(worker))).toHaveLength(4)
})

test.each([
  [['work'], [2, 'usage']],
  [
    ['work', '--agent', 'command'],
    [2, 'usage'],
  ],
  [
    ['work', '--turns-per-hour', '0', '--', 'cat'],
    [2, 'usage'],
  ],
  [
    ['work', '--money-per-day', 'lots', '--', 'cat'],
    [2, 'usage'],
  ],
  [
    ['work', '--', 'no-such-program'],
    [3, 'agent_missing'],
  ],
])('%j is refused with a code and a sentence', async (words, failure) => {
  const { code, err } = await runHere(
    [...words, '--json'].toSorted((a) => (a === '--json' ? -1 : 0)),
    machine.environment,
  )
  expect(failureOf({ code, stdout: '', stderr: err })).toEqual(failure)
})

async function untilGone(pid: number): Promise<void> {
  for (;;) {
    const isAlive = await readFile(`/proc/${pid}/stat`, 'utf8').then(
      (stat) => !/\) Z /.test(stat),
      () => false,
    )
    if (!isAlive) return
    await delay(20)
  }
}
