import type { Command } from 'commander'

/** The command and all below it, in the order of the help, each with the names that lead to it. */
export function eachCommand(
  command: Command,
  visit: (command: Command, path: readonly string[]) => void,
  above: readonly string[] = [],
): void {
  const path = [...above, command.name()]
  visit(command, path)
  for (const below of command.commands) eachCommand(below, visit, path)
}
