/** `sealpost history`: what was changed and said between two moments. */
import { Command } from 'commander'
import { moment } from '../moment.ts'
import { examples, type Run } from '../shell.ts'
import { GROUP_OPTION, withState } from '../state-session.ts'
import { whole } from '../words.ts'
import { showEvents } from './state.ts'

interface HistoryOptions {
  readonly group?: string
  readonly from?: { us: number }
  readonly to?: { us: number }
  readonly after?: number
  readonly limit?: number
}

export function historyCommand(run: Run): Command {
  return new Command('history')
    .description('what was changed and said in a mesh or a group, as far as it is kept, oldest first')
    .option(...GROUP_OPTION)
    .option('--from <TIME>', 'from a time on, like 2026-11-22T14:03Z, or how long ago, like 2h', moment)
    .option('--to <TIME>', 'before a time, or how long ago', moment)
    .option('--after <N>', 'begin behind the event of this number', whole(0, Number.MAX_SAFE_INTEGER))
    .option('--limit <N>', 'end after N events', whole(1, 1_000_000_000))
    .addHelpText(
      'after',
      examples('sealpost history --from 2h', 'sealpost history --group crew --from 2026-11-22 --json'),
    )
    .action(
      run((shell, { group, ...bounds }: HistoryOptions) =>
        withState(shell, group, (state) => showEvents(shell, state.history({ ...bounds, signal: shell.signal }))),
      ),
    )
}
