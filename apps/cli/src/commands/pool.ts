/** `sealpost pool`: peers of whom one takes each message, a queue of work. */
import { PRIORITIES, type Priority } from '@sealpost/protocol'
import { Command, Option } from 'commander'
import { readBody } from '../body.ts'
import { withDeadline } from '../deadline.ts'
import { callPeer } from '../peer-session.ts'
import { type PoolFacts, poolNamed } from '../pool-calls.ts'
import { recipientsOf } from '../recipient.ts'
import { listRosters, MEMBERS, showRoster } from '../roster-view.ts'
import { examples, type Run, type Shell } from '../shell.ts'
import { escapeName } from '../terminal-text.ts'
import { duration, timeOption } from '../words.ts'

const POOL = ['<POOL>', 'its name, or its id of 64 hex digits'] as const

export function poolCommand(run: Run): Command {
  return new Command('pool')
    .description('give work to whichever of several peers is free')
    .addCommand(createCommand(run))
    .addCommand(listCommand(run))
    .addCommand(showCommand(run))
    .addCommand(changeCommand(run, 'add', 'take peers in; only who made the pool may'))
    .addCommand(changeCommand(run, 'remove', 'take peers out: they get nothing more, waiting or sent later'))
    .addCommand(sendCommand(run))
    .addHelpText(
      'after',
      examples(
        'sealpost pool create reviewers bob carol',
        'git diff | sealpost pool send reviewers',
        "sealpost listen --pool reviewers --exec './review.sh'",
      ),
    )
}

function createCommand(run: Run): Command {
  return new Command('create')
    .description('make a pool of these peers; you are in it only if you name yourself')
    .argument('<NAME>', 'what it is called')
    .argument(...MEMBERS)
    .addHelpText('after', examples('sealpost pool create reviewers bob carol'))
    .action(
      run(async (shell, _options: object, name: string, words: readonly string[]) => {
        const members = await recipientsOf(shell, words)
        await show(shell, await callPeer(shell, { method: 'createPool', question: { name, members } }))
      }),
    )
}

function listCommand(run: Run): Command {
  return new Command('list')
    .description('the pools of the mesh: everybody may send to them')
    .addHelpText('after', examples('sealpost pool list', 'sealpost pool list --json'))
    .action(
      run(async (shell) => {
        const pools = await callPeer(shell, { method: 'pools', question: null })
        await listRosters(shell, pools)
      }),
    )
}

function showCommand(run: Run): Command {
  return new Command('show')
    .description('who is in a pool')
    .argument(...POOL)
    .addHelpText('after', examples('sealpost pool show reviewers'))
    .action(run(async (shell, _options: object, word: string) => show(shell, await find(shell, word))))
}

function changeCommand(run: Run, verb: 'add' | 'remove', description: string): Command {
  return new Command(verb)
    .description(description)
    .argument(...POOL)
    .argument(...MEMBERS)
    .addHelpText('after', examples(`sealpost pool ${verb} reviewers dave`))
    .action(
      run(async (shell, _options: object, word: string, words: readonly string[]) => {
        const { id: pool } = await find(shell, word)
        const peers = await recipientsOf(shell, words)
        const question = { pool, add: [], remove: [], [verb]: peers }
        await show(shell, await callPeer(shell, { method: 'changePool', question }))
      }),
    )
}

interface SendOptions {
  readonly file?: string
  readonly priority: Priority
  readonly ttl?: number
  readonly timeout: number
}

function sendCommand(run: Run): Command {
  return new Command('send')
    .description(
      'send a message to whoever of a pool is free: TEXT, a file, or stdin; done when the broker has stored it',
    )
    .argument(...POOL)
    .argument('[TEXT]', 'the message; without it and without --file it is read from stdin')
    .option('-f, --file <PATH>', 'the message is what this file holds; - is stdin')
    .addOption(new Option('--priority <PRIORITY>', 'how urgent').choices(PRIORITIES).default('next'))
    .option('--ttl <TIME>', 'how long the broker keeps it while nobody is free, like 2h or 14d', duration)
    .addOption(timeOption('--timeout <TIME>', 'how long to wait for the broker', '30s'))
    .addHelpText(
      'after',
      examples("sealpost pool send reviewers 'look at 4711'", 'git diff | sealpost pool send reviewers'),
    )
    .action(run(send))
}

async function send(asked: Shell, options: SendOptions, word: string, text: string | undefined): Promise<void> {
  const { timeout, file, priority, ttl: ttlSeconds = 0 } = options
  const body = await readBody({ text, file })
  using shell = withDeadline(asked, timeout, `The broker has not stored it after ${timeout} s; it may have been.`)
  const { id: pool, name } = await find(shell, word)
  const question = { pool, bodyBase64: Buffer.from(body).toString('base64'), priority, ttlSeconds }
  const receipt = await callPeer(shell, { method: 'sendToPool', question, withinMs: timeout * 1000 })
  const { output } = shell
  if (output.isJson) await output.answer({ pool, name, bytes: body.length, stored: true, ...receipt }, () => '')
  else output.note(`stored for ${escapeName(name)}, ${body.length} bytes`)
}

async function find(shell: Shell, word: string): Promise<PoolFacts> {
  return poolNamed(await callPeer(shell, { method: 'pools', question: null }), word)
}

const show = (shell: Shell, pool: PoolFacts): Promise<void> => showRoster(shell, 'pool', pool)
