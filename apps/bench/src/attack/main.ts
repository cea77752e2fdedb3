/**
 * Measures what attacks cost an honest peer: `bun scripts/attack.ts`, or one attack with `--only NAME`. Each attack
 * runs against its own broker, on loopback, for a bounded time.
 */

import { runCommand } from '@sealpost/harness/programs/command'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { OperatingError } from '@sealpost/std'
import { Command, InvalidArgumentError } from 'commander'
import { type AttackOutcome, measureAttack, reportText } from './measure.ts'
import { attacks } from './members.ts'

const wholeNumber = (text: string): number => {
  if (!/^[1-9]\d{0,3}$/.test(text)) throw new InvalidArgumentError('Use a number from 1 to 9999.')
  return Number(text)
}

const options = new Command('attack')
  .description('Measure how attacks on a broker affect an honest peer that sends 10 messages per second.')
  .option('--only <name...>', 'run only these attacks')
  .option('--pairs <count>', 'the number of pairs of turns with and without the attack', wholeNumber, 5)
  .option('--seconds <count>', 'the length of a turn', wholeNumber, 10)
  .option('--list', 'list the attacks')
  .option('--json <file>', 'also write the figures to this file')
  .addHelpText('after', '\nSet DATABASE_URL to the Postgres database to use; otherwise an embedded one is started.')
  .parse()
  .opts<{ only?: string[]; pairs: number; seconds: number; list?: true; json?: string }>()

await runCommand(async (teardown) => {
  if (!options.list) return run(teardown)
  console.log(attacks.map(({ name, does }) => `${name.padEnd(18)} ${does}`).join('\n'))
  return 0
})

async function run(teardown: Teardown): Promise<number> {
  const outcomes: AttackOutcome[] = []
  for (const attack of chosen()) outcomes.push(await measureAttack(attack, options, teardown))
  console.log(reportText(outcomes))
  if (options.json) await Bun.write(options.json, `${JSON.stringify(outcomes, null, 1)}\n`)
  return outcomes.every(({ isWithinBars }) => isWithinBars) ? 0 : 1
}

/** Returns the chosen attacks. @throws OperatingError `unknown_attack` */
function chosen() {
  const names = options.only ?? attacks.map(({ name }) => name)
  return names.map((name) => {
    const attack = attacks.find((each) => each.name === name)
    if (!attack) throw new OperatingError('unknown_attack', `There is no attack "${name}". --list prints the attacks.`)
    return attack
  })
}
