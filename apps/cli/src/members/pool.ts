/** `sealpost pool`: peers of whom one takes each message, a queue of work. */
import { PRIORITIES, type Priority } from '@sealpost/protocol'
import { Command, Option } from 'commander'
import { examples, type RunAction, type Shell } from '../completion.ts'
import { withDeadline } from '../deadline.ts'
import { readBody } from '../messages/send.ts'
import { escapeName } from '../output.ts'
import { findPool, type PoolFacts } from '../session/group-calls.ts'
import { callPeer } from '../session/peer-session.ts'
import { durationOption, parseDuration } from '../settings.ts'
import { findMemberList, type MemberListSpec, memberListCommands } from './member-list.ts'

const POOLS: MemberListSpec<PoolFacts> = {
  noun: 'pool',
  argument: ['<POOL>', 'its name, or its id of 64 hex digits'],
  example: 'reviewers',
  descriptions: {
    create: 'make a pool of these peers; you are in it only if you name yourself',
    list: 'the pools of the mesh: everybody may send to them',
    add: 'take peers in; only who made the pool may',
    remove: 'take peers out: they get nothing more, waiting or sent later',
  },
  list: (shell) => callPeer(shell, { method: 'pools', params: null }),
  named: findPool,
  create: (shell, params) => callPeer(shell, { method: 'createPool', params }),
  change: (shell, { id: pool }, change) => callPeer(shell, { method: 'changePool', params: { pool, ...change } }),
}

export function poolCommand(run: RunAction): Command {
  const pool = new Command('pool').description('give work to whichever of several peers is free')
  for (const command of memberListCommands(run, POOLS)) pool.addCommand(command)
  return pool
    .addCommand(sendCommand(run))
    .addCommand(deleteCommand(run))
    .addHelpText(
      'after',
      examples(
        'sealpost pool create reviewers bob carol',
        'git diff | sealpost pool send reviewers',
        "sealpost listen --pool reviewers --exec './review.sh'",
      ),
    )
}

function deleteCommand(run: RunAction): Command {
  return new Command('delete')
    .description('end a pool for good: nobody can send to it, and what waits in it expires; only its owner may')
    .argument(...POOLS.argument)
    .addHelpText('after', examples('sealpost pool delete reviewers'))
    .action(
      run(async (shell, _options: object, word: string) => {
        const { id: pool, name } = await findMemberList(shell, POOLS, word)
        await callPeer(shell, { method: 'deletePool', params: { pool } })
        await shell.output.result({ deleted: pool }, () => `${escapeName(name)} is deleted`)
      }),
    )
}

interface SendOptions {
  readonly file?: string
  readonly priority: Priority
  readonly ttl?: number
  readonly timeout: number
}

function sendCommand(run: RunAction): Command {
  return new Command('send')
    .description(
      'send a message to a free worker of a pool: TEXT, a file, or stdin; done when the broker has stored it',
    )
    .argument(...POOLS.argument)
    .argument('[TEXT]', 'the message; without it and without --file it is read from stdin')
    .option('-f, --file <PATH>', 'the message is what this file holds; - is stdin')
    .addOption(new Option('--priority <PRIORITY>', 'how urgent').choices(PRIORITIES).default('next'))
    .option('--ttl <TIME>', 'how long the broker keeps it while nobody is free, like 2h or 14d', parseDuration)
    .addOption(durationOption('--timeout <TIME>', 'how long to wait for the broker', '30s'))
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
  const { id: pool, name } = await findMemberList(shell, POOLS, word)
  const params = { pool, bodyBase64: Buffer.from(body).toString('base64'), priority, ttlSeconds }
  const receipt = await callPeer(shell, { method: 'sendToPool', params, withinMs: timeout * 1000 })
  const { output } = shell
  if (output.isJson) await output.result({ pool, name, bytes: body.length, stored: true, ...receipt }, () => '')
  else output.info(`stored for ${escapeName(name)}, ${body.length} bytes`)
}
