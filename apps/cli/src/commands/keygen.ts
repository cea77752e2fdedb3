/** `sealpost keygen`: keys for a profile. `join` makes them too; this one is for those who want to know them before. */
import { fingerprint } from '@sealpost/identity'
import { Command } from 'commander'
import { examples, type Run, type Shell } from '../shell.ts'

export function keygenCommand(run: Run): Command {
  return new Command('keygen')
    .description('make the keys of a profile; existing ones are never touched')
    .option('--passphrase', 'lock them with a passphrase: typed, from SEALPOST_PASSPHRASE, or from --passphrase-file')
    .addHelpText(
      'after',
      examples(
        'sealpost keygen',
        'sealpost keygen --profile work --json',
        'sealpost keygen --passphrase',
        'sealpost keygen --passphrase --passphrase-file ~/.sealpost-passphrase',
      ),
    )
    .action(run(keygen))
}

async function keygen({ profile, output }: Shell, { passphrase }: { readonly passphrase?: boolean }): Promise<void> {
  const { signing } = await (passphrase ? profile.makeLockedKeys() : profile.makeKeys())
  const made = {
    profile: profile.name,
    key: signing.publicKey,
    fingerprint: fingerprint(signing.publicKey),
    file: profile.keyFile,
  }
  await output.answer(made, () => output.facts(Object.entries(made)))
}
