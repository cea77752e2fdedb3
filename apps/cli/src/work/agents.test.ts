/** Tests the command lines of the agents that `sealpost work` knows, and how their output is read. */
import { describe, expect, test } from 'vitest'
import { agentNameOf, agentOf } from './agents.ts'

const NEW = { id: 'c1', isNew: true }
const OLD = { id: 'c1', isNew: false }
const output = (stdout: string, failure: string | null = null, stderr = '') => ({
  ...{ stdout: Buffer.from(stdout), failure, stderr },
})

test('the name of the program chooses the agent', () => {
  expect([['claude', '-p'], ['/opt/codex', 'exec'], ['./review.sh'], []].map(agentNameOf)).toEqual([
    ...['claude', 'codex', 'command', 'command'],
  ])
})

describe('Claude Code', () => {
  test('begins a conversation with an id, and resumes it by the same id', () => {
    const agent = agentOf('claude', ['claude', '--model', 'sonnet'])
    const words = ['claude', '--model', 'sonnet', '-p', '--output-format', 'json']
    expect(agent.commandLine(NEW)).toEqual([...words, '--session-id', 'c1'])
    expect(agent.commandLine(OLD)).toEqual([...words, '--resume', 'c1'])
    expect(agent.newConversation()).toMatch(/^[0-9a-f-]{36}$/)
  })

  test.each(['--resume=x', '--continue', '-c'])('keeps the conversation that the user chose with %s', (option) => {
    const agent = agentOf('claude', ['claude', '-p', option, '--output-format=json'])
    expect(agent.newConversation()).toBeNull()
    expect(agent.commandLine({ id: null, isNew: true })).toEqual(['claude', '-p', option, '--output-format=json'])
  })

  test('reports its reply, its cost and its conversation', () => {
    const result = { type: 'result', is_error: false, result: 'done', session_id: 'c2', total_cost_usd: 0.25 }
    const read = (stdout: string, failure: string | null = null) => agentOf('claude', []).read(output(stdout, failure))
    const expected = { reply: Buffer.from('done'), cost: 0.25, failure: null, conversation: 'c2' }
    expect(read(JSON.stringify(result))).toEqual(expected)
    expect(read(JSON.stringify([{ type: 'system' }, result]))).toEqual(expected)
    expect(read(`{"type":"system"}\n${JSON.stringify(result)}\n`)).toEqual(expected)
    const failed = { ...result, is_error: true, subtype: 'error_max_turns' }
    expect(read(JSON.stringify(failed))).toMatchObject({ cost: 0.25, failure: 'Claude Code reported error_max_turns' })
    expect(read('plain')).toMatchObject({ reply: Buffer.from('plain'), cost: null, failure: null })
  })

  test('reports a conversation that no longer exists', () => {
    const lost = output('', 'it exited with code 1', 'No conversation found with session ID: c1')
    expect(agentOf('claude', []).read(lost)).toMatchObject({ conversation: null, failure: 'it exited with code 1' })
  })
})

describe('Codex', () => {
  const events = (...items: readonly object[]) => items.map((item) => `${JSON.stringify(item)}\n`).join('')
  const message = (text: string) => ({ type: 'item.completed', item: { type: 'agent_message', text } })

  test('begins a conversation, and resumes it by the id that it printed', () => {
    const agent = agentOf('codex', ['codex', 'exec', '--full-auto'])
    expect(agent.commandLine({ id: null, isNew: true })).toEqual(['codex', 'exec', '--full-auto', '--json', '-'])
    expect(agent.commandLine(OLD)).toEqual(['codex', 'exec', '--full-auto', '--json', 'resume', 'c1', '-'])
    expect(agent.conversationIn('{"type":"thread.started","thread_id":"c9"}')).toBe('c9')
    expect(agent.conversationIn('{"type":"turn.started"}')).toBeNull()
    expect(agentOf('codex', []).commandLine({ id: null, isNew: true })).toEqual(['codex', 'exec', '--json', '-'])
  })

  test('reports its last message as the reply, and failed turns', () => {
    const read = (stdout: string) => agentOf('codex', []).read(output(stdout))
    const whole = events({ type: 'thread.started', thread_id: 'c9' }, message('first'), message('last'))
    expect(read(whole)).toEqual({ reply: Buffer.from('last'), cost: null, failure: null, conversation: undefined })
    expect(read(whole + events({ type: 'turn.failed' }))).toMatchObject({ failure: 'Codex reported turn.failed' })
  })

  test('reports a conversation that no longer exists', () => {
    const lost = output('', 'it exited with code 1', 'Error: no rollout found for thread id c1')
    expect(agentOf('codex', []).read(lost)).toMatchObject({ conversation: null })
    expect(agentOf('codex', []).read(output('', 'it exited with code 1'))).toMatchObject({ conversation: undefined })
  })
})
