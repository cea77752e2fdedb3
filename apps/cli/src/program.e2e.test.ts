import { spawnSync } from 'node:child_process'
import { expect, test } from 'vitest'
import { completionScript, sealpost } from './program.ts'

const program = await sealpost(() => () => Promise.resolve())

/** Returns bash's completions of the last word. */
function offered(...words: string[]): string[] {
  const script = `${completionScript('bash', program)}
COMP_WORDS=(sealpost ${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length}
_sealpost; printf '%s\\n' "\${COMPREPLY[@]}"`
  const { status, stdout, stderr } = spawnSync('bash', ['-c', script], { encoding: 'utf8' })
  expect(stderr).toBe('')
  expect(status).toBe(0)
  return stdout.split('\n').filter(Boolean)
}

test('bash completes commands, subcommands, options and choices', () => {
  expect(offered('se')).toEqual(['send', 'sent', 'sessions'])
  expect(offered('dead', '')).toEqual(expect.arrayContaining(['list', 'redrive', 'purge', '--json']))
  expect(offered('dead', 'list', '--old')).toEqual(['--older-than'])
  expect(offered('send', 'bob', '--priority', '')).toEqual(['now', 'next', 'low'])
  expect(offered('completion', 'z')).toEqual(['zsh'])
  expect(offered('--profile', 'desk', 'invite', 'cr')).toEqual(['create'])
  expect(offered('mcp', 'install', 'cl')).toEqual(['claude', 'claude-desktop'])
  expect(offered('mcp', 'uninstall', '--pro')).toEqual(['--project', '--profile'])
})

test('zsh uses the same function, and fish completes every command', () => {
  expect(completionScript('zsh', program)).toContain('#compdef sealpost\n')
  const fish = completionScript('fish', program)
  for (const { name } of program.commands.map((command) => ({ name: command.name() })))
    expect(fish).toMatch(new RegExp(`^complete -c sealpost .* -a ${name} -d '`, 'm'))
  expect(fish).toContain("-n '__fish_seen_subcommand_from dead; and __fish_seen_subcommand_from list' -l older-than")
})
