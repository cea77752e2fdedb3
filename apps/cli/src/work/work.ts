/** `sealpost work` runs a turn of an agent for each message, and sends its output as the reply. */
import { join, resolve } from 'node:path'
import type { Message } from '@sealpost/sdk'
import { OperatingError } from '@sealpost/std'
import { Argument, Command, InvalidArgumentError, Option } from 'commander'
import { escapeName } from '../output.ts'
import { openSession } from '../session/peer-session.ts'
import { findPools, PoolHolds } from '../session/pool-holds.ts'
import { durationOption, maxAgeOption, parseInteger, sessionNameOption } from '../settings.ts'
import { abortable, examples, type RunAction, type Shell, warnOfUnset } from '../shell.ts'
import { AGENT_NAMES, type Agent, type AgentName, agentNameOf, agentOf } from './agents.ts'
import { TurnJournal } from './journal.ts'
import type { SenderBudget, TurnLimits } from './turns.ts'
import { Worker } from './worker.ts'

interface WorkCommandOptions extends SenderBudget {
  readonly agent?: AgentName
  readonly batch: number
  readonly concurrency: number
  readonly attempts: number
  readonly timeout: number
  readonly costPerTurn: number
  readonly overBudget: 'return' | 'reject'
  readonly afterCut?: 'resume' | 'report'
  readonly maxHops: number
  readonly pool?: readonly string[]
  readonly files?: string
  readonly env?: readonly string[]
  readonly maxAge?: number
  readonly as?: string
  readonly count?: number
}

export function workCommand(run: RunAction): Command {
  const command = new Command('work')
    .description(
      "Run one turn of an agent for each message, and send its output to the sender as the reply, until Ctrl-C. The message is on the agent's stdin. COMMAND is not run in a shell. Its environment is like that of `listen --exec`, with SEALPOST_THREAD, SEALPOST_THREAD_STATE (a folder that belongs to the conversation), SEALPOST_BATCH, SEALPOST_TURN_ID, SEALPOST_TURN_ATTEMPT and SEALPOST_TURN_RESUMED",
    )
    .addArgument(new Argument('[COMMAND...]', 'the agent, after `--`; default: `claude` or `codex exec` with --agent'))
    .addOption(
      new Option(
        '--agent <AGENT>',
        'the kind of agent, which determines how a conversation is resumed for each thread; default: by the name of COMMAND',
      ).choices(AGENT_NAMES),
    )
    .option(
      '--batch <N>',
      'run one turn for up to N waiting messages of a conversation; COMMAND then gets a line of JSON for each message',
      parseInteger(1, 64),
      1,
    )
    .option('--concurrency <N>', 'run up to N turns at a time, one in each conversation', parseInteger(1, 64), 1)
    .option('--attempts <N>', 'reject a message after N failed turns', parseInteger(1, 20), 3)
    .addOption(durationOption('--timeout <TIME>', 'end a turn that takes longer', '1h'))
    .addOption(
      new Option(
        '--after-cut <ACTION>',
        'what to do with a message whose turn was cut because this command was killed: start a turn that resumes the conversation, or reject the message with an error reply; default: resume for claude and codex, otherwise report',
      ).choices(['resume', 'report']),
    )
    .option('--max-hops <N>', 'reject messages that passed from agent to agent N times', parseInteger(1, 64), 8)
    .option('--pool <POOL...>', 'also work for these pools (names or ids)')
    .option('--files <FOLDER>', 'save the files of messages in this folder; default: the folder "files" of the profile')
    .option('--env <NAME...>', 'pass these environment variables to COMMAND; you can repeat this option')
    .addOption(maxAgeOption())
    .addOption(sessionNameOption())
    .option('-n, --count <N>', 'exit after N messages', parseInteger(1, 1_000_000_000))
  return withBudgetOptions(command)
    .addHelpText(
      'after',
      examples(
        'sealpost work --agent claude',
        'sealpost work -- claude -p --model sonnet --allowedTools Read,Grep',
        'sealpost work --turns-per-hour 20 --money-per-day 5 -- claude -p',
        'sealpost work --agent codex --cost-per-turn 0.10 --money-per-day 2',
        'sealpost work --pool reviewers --concurrency 4 -- ./review.sh',
        'sealpost work --as reviewer -- claude -p',
        "sealpost work -- sh -c 'tr a-z A-Z'",
      ),
    )
    .action(run(work))
}

function withBudgetOptions(command: Command): Command {
  return command
    .option('--turns-per-hour <N>', 'the budget of each sender in turns per hour', parseInteger(1, 1_000_000))
    .option('--turns-per-day <N>', 'the budget of each sender in turns per 24 hours', parseInteger(1, 1_000_000))
    .option(
      '--minutes-per-day <N>',
      'the budget of each sender in minutes of turns per 24 hours',
      parseInteger(1, 1_000_000),
    )
    .option(
      '--money-per-day <AMOUNT>',
      'the budget of each sender in money per 24 hours, as the agent reports its cost',
      parseMoney,
    )
    .option('--cost-per-turn <AMOUNT>', 'the cost of a turn whose agent reports none', parseMoney, 0)
    .addOption(
      new Option(
        '--over-budget <ACTION>',
        'what to do with a message whose sender has exhausted a budget: return it to the queue until the budget renews, or reject it',
      )
        .choices(['return', 'reject'])
        .default('return'),
    )
}

function parseMoney(text: string): number {
  if (/^\d{1,9}(\.\d{1,6})?$/.test(text)) return Number(text)
  throw new InvalidArgumentError('Use an amount such as 5 or 0.25.')
}

async function work(shell: Shell, options: WorkCommandOptions, words: readonly string[]): Promise<void> {
  const { batch, concurrency, timeout, costPerTurn, count = Infinity, env = [], pool = [] } = options
  const agent = chosenAgent(options.agent ?? agentNameOf(words), words)
  checkProgram(agent, shell.settings.environment.PATH)
  warnOfUnset(shell, env)
  const pools = await findPools(shell, pool)
  const held = Math.min(512, Math.max(64, 4 * concurrency * batch))
  const credit = Math.min(held, count)
  const folder = join(shell.profile.folder, 'work')
  let worker: Worker | null = null
  const onWithdrawn = (message: Message) => worker?.withdraw(message)
  const terms = { as: options.as, credit, maxAgeSeconds: options.maxAge, sharesUnread: true, onWithdrawn }
  await using session = await openSession(shell, { ...terms, readWhen: 'marked' })
  await using journal = await TurnJournal.open(folder)
  await abortable(new PoolHolds(shell, session.session).joinAll(pools, concurrency * batch), shell.signal)
  shell.output.info(`working as ${session.name}; press Ctrl-C to end`)
  worker = new Worker({
    ...{ shell, session, journal, folder, agent, concurrency, batch, costPerTurn, count, env },
    limits: limitsOf(options, agent),
    timeoutMs: timeout * 1000,
    files: resolve(options.files ?? join(shell.profile.folder, 'files')),
  })
  await worker.run()
}

function chosenAgent(name: AgentName, words: readonly string[]): Agent {
  if (name === 'command' && words.length === 0)
    throw new OperatingError('usage', 'Give the command of an agent after `--`, or choose one with --agent.')
  return agentOf(name, words)
}

function checkProgram(agent: Agent, path: string | undefined): void {
  const [program] = agent.commandLine({ id: null, isNew: true })
  if (Bun.which(program!, { PATH: path ?? '' }) !== null) return
  throw new OperatingError('agent_missing', `There is no program ${escapeName(program!)} on the PATH.`)
}

function limitsOf(options: WorkCommandOptions, agent: Agent): TurnLimits {
  const { attempts, maxHops, overBudget, afterCut } = options
  const { turnsPerHour, turnsPerDay, minutesPerDay, moneyPerDay } = options
  return {
    attemptsMax: attempts,
    hopsMax: maxHops,
    budget: { turnsPerHour, turnsPerDay, minutesPerDay, moneyPerDay },
    isRejectedOverBudget: overBudget === 'reject',
    canResume: afterCut === undefined ? agent.canResume : afterCut === 'resume',
  }
}
