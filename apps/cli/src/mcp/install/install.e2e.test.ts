/** Tests that what `sealpost mcp install` writes starts a server that works, and hooks that reach other members. */
import { spawnSync } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { expect, test } from 'vitest'
import { jsonLinesOf, Machine } from '../../test/cli.ts'

test('a client starts the server with the installed entry, and a hook changes the status that members see', async () => {
  await using machine = await Machine.withBroker('agent')
  const installed = await machine.run(['mcp', 'install', 'cursor', '--profile', 'agent', '--yes'])
  expect(installed.code, installed.stderr).toBe(0)
  const read = async (name: string) => JSON.parse(await readFile(join(machine.folder, '.cursor', name), 'utf8'))
  const { command, args, env } = (await read('mcp.json')).mcpServers.sealpost
  // A desktop application has no PATH of a shell.
  const bare = { HOME: machine.folder, PATH: '/usr/bin:/bin' }
  const client = new Client({ name: 'test', version: '1.0.0' })
  await client.connect(new StdioClientTransport({ command, args, env: { ...bare, ...env }, stderr: 'ignore' }))
  try {
    const listed = await client.callTool({ name: 'list_peers', arguments: {} })
    expect(JSON.stringify(listed.structuredContent)).toContain('alice')
    const { hooks } = await read('hooks.json')
    const hook = spawnSync('sh', ['-c', hooks.beforeSubmitPrompt[0].command], {
      env: bare,
      input: '{}',
      encoding: 'utf8',
    })
    expect([hook.status, hook.stdout, hook.stderr]).toEqual([0, '{}\n', ''])
    await expect
      .poll(async () => jsonLinesOf(await machine.run(['peers', '--json'])).find(({ name }) => name === 'agent'))
      .toMatchObject({ availability: 'working' })
  } finally {
    await client.close()
  }
})
