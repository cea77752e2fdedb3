/** `sealpost completion`: a script for the shell, made from the tree of commands. */
import { Argument, Command } from 'commander'
import { completionScript, SHELLS, type ShellName } from '../completion-script.ts'
import { examples, type Run, type Shell } from '../shell.ts'

export function completionCommand(run: Run, programOf: () => Command): Command {
  return new Command('completion')
    .description('print the script with which a shell completes commands and options')
    .addArgument(new Argument('<SHELL>', 'the shell').choices(SHELLS))
    .addHelpText(
      'after',
      examples(
        'sealpost completion bash > ~/.local/share/bash-completion/completions/sealpost',
        'sealpost completion zsh > ~/.zfunc/_sealpost',
        'sealpost completion fish > ~/.config/fish/completions/sealpost.fish',
      ),
    )
    .action(run((shell: Shell, _options: object, name: ShellName) => print(shell, completionScript(name, programOf()))))
}

/** The script is no answer in JSON. */
function print({ output }: Shell, script: string): Promise<void> {
  return output.answer({ script }, () => script)
}
