/** `sealpost consent`: whom you take mail from. The broker keeps to it, whether you are there or not. */
import type { ConsentState, ConsentUpdate, PeerKey } from '@sealpost/sdk'
import { Argument, Command } from 'commander'
import { Contacts } from '../profile/contacts.ts'
import { labelOf } from '../session/peer-events.ts'
import { callPeer } from '../session/peer-session.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { escapeName } from '../terminal-text.ts'
import { resolveRecipient } from './peer-names.ts'

export function consentCommand(run: RunAction): Command {
  return new Command('consent')
    .description('whom you take mail from')
    .addCommand(showCommand(run))
    .addCommand(setCommand(run))
    .addCommand(nameCommand(run, 'allow', 'takes mail from them, also when only contacts may write'))
    .addCommand(nameCommand(run, 'block', 'takes nothing from them any more; what came before stays'))
    .addCommand(nameCommand(run, 'forget', 'neither allowed nor blocked any more'))
    .addHelpText(
      'after',
      examples('sealpost consent show', 'sealpost consent set contacts', 'sealpost consent allow bob alice'),
    )
}

function showCommand(run: RunAction): Command {
  return new Command('show')
    .description('show who may write to you, and whom you allow or block')
    .addHelpText('after', examples('sealpost consent show', 'sealpost consent show --json'))
    .action(run((shell) => update(shell, {})))
}

function setCommand(run: RunAction): Command {
  return new Command('set')
    .description('open: everybody but those you block may write; contacts: only those you allow')
    .addArgument(new Argument('<POLICY>', 'who may write').choices(['open', 'contacts']))
    .addHelpText('after', examples('sealpost consent set contacts', 'sealpost consent set open'))
    .action(run((shell, _options: object, policy: 'open' | 'contacts') => update(shell, { policy })))
}

function nameCommand(run: RunAction, verb: 'allow' | 'block' | 'forget', description: string): Command {
  return new Command(verb)
    .description(description)
    .argument('<NAME...>', 'names, fingerprints, or keys of 64 hex digits')
    .addHelpText('after', examples(`sealpost consent ${verb} bob`))
    .action(
      run(async (shell, _options: object, words: readonly string[]) => {
        const keys: PeerKey[] = []
        for (const word of words) keys.push(await resolveRecipient(shell, word))
        await update(shell, { [verb]: keys })
      }),
    )
}

async function update(shell: Shell, params: ConsentUpdate): Promise<void> {
  const state = await callPeer(shell, { method: 'consent', params })
  const contacts = await Contacts.read(shell.profile.contactsFile)
  await shell.output.result(state, () => describe(shell, state, contacts))
}

function describe({ output }: Shell, { policy, allowed, blocked }: ConsentState, contacts: Contacts): string {
  const names = (keys: ConsentState['allowed']) =>
    keys.map((key) => escapeName(labelOf(contacts, key))).join(', ') || 'nobody'
  return output.facts([
    ['who may write', policy === 'open' ? 'everybody but those blocked (open)' : 'those allowed (contacts)'],
    ['allowed', names(allowed)],
    ['blocked', names(blocked)],
  ])
}
