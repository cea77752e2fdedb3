/** `sealpost doctor`: looks at everything between this profile and a delivered message, and says what is wrong. */
import { OperatingError } from '@sealpost/std'
import { Command } from 'commander'
import { examples, type RunAction, type Shell } from '../completion.ts'
import { escapeName, type Paint } from '../output.ts'
import { checkAll, type DoctorCheck } from './checks.ts'
import { checkDatabase } from './database-checks.ts'

export function doctorCommand(run: RunAction): Command {
  return new Command('doctor')
    .description('check files, clock, broker, handshake, and a message to yourself; or the database of a broker')
    .option('--database', 'check settings, machine and the database that DATABASE_URL names, instead')
    .addHelpText(
      'after',
      examples('sealpost doctor', 'sealpost doctor --profile work --json', 'sealpost doctor --database'),
    )
    .action(run(doctor))
}

async function doctor(shell: Shell, { database }: { database?: boolean }): Promise<void> {
  const { output, settings } = shell
  const checks = database ? checkDatabase(settings.databaseUrl(), settings.environment) : checkAll(shell)
  let failed = 0
  for await (const check of checks) {
    if (check.outcome === 'failed') failed += 1
    await output.result(check, () => lineOf(check, output.paint))
  }
  if (failed > 0) throw new OperatingError('doctor_failed', `${failed} of the checks failed.`)
}

function lineOf({ name, outcome, detail }: DoctorCheck, paint: Paint): string {
  const marks = {
    ok: paint.green('ok  '),
    warning: paint.yellow('warn'),
    failed: paint.red('FAIL'),
    skipped: paint.dim('skip'),
  }
  return `${marks[outcome]}  ${name.padEnd(11)}  ${escapeName(detail)}`
}
