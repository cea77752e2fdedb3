/** `sealpost keygen`: keys for a profile. `join` makes them too; this one is for those who want to know them before. */
import { fingerprint } from '@sealpost/identity'
import { Command } from 'commander'
import { examples, type Run, type Shell } from '../shell.ts'

export function keygenCommand(run: Run): Command {
  return new Command('keygen')
    .description('make the keys of a profile; existing ones are never touched')
    .addHelpText('after', examples('sealpost keygen', 'sealpost keygen --profile work --json'))
    .action(run(keygen))
}

async function keygen({ profile, output }: Shell): Promise<void> {
  const { signing } = await profile.makeKeys()
  const made = {
    profile: profile.name,
    key: signing.publicKey,
    fingerprint: fingerprint(signing.publicKey),
    file: profile.keyFile,
  }
  await output.answer(made, () => output.facts(Object.entries(made)))
}
