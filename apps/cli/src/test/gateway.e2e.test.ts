/** Tests the gateway with a broker: an HTTP client and webhooks on the machine of a peer. */
import { stat } from 'node:fs/promises'
import { createServer, request, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { Webhook } from 'standardwebhooks'
import { beforeAll, expect, test } from 'vitest'
import { failureOf, jsonLinesOf, jsonOf, letIn, Machine, type Running } from './cli.ts'

let machine: Machine
beforeAll(async () => {
  machine = await Machine.withBroker('bob')
  return () => machine[Symbol.asyncDispose]()
})

let count = 0

/** Starts the gateway of a new member. */
async function startGateway(...words: string[]) {
  const name = `desk-${++count}`
  await letIn(machine, name)
  return { name, ...(await startAs(name, ...words)) }
}

async function startAs(name: string, ...words: string[]) {
  const running = machine.start(['gateway', '--port', '0', '--profile', name, ...words])
  const url = await running.until('it listens', ({ stderr }) => /gateway at (http:\S+);/.exec(stderr)?.[1])
  return { running, url }
}

async function tokenOf(profile: string, ...words: string[]): Promise<string> {
  return jsonOf(await machine.run(['gateway', 'token', `t${++count}`, '--profile', profile, '--json', ...words])).token
}

async function call(url: string, token: string | null, given?: object, headers: Record<string, string> = {}) {
  const response = await fetch(url, {
    method: given ? 'POST' : 'GET',
    headers: { ...(token !== null && { authorization: `Bearer ${token}` }), ...headers },
    ...(given && { body: JSON.stringify(given) }),
  })
  const answer = (await response.json()) as { code?: string; message?: string; envelopeId?: string }
  return { ...answer, status: response.status }
}

/** Announces a body of this size, and sends none of it. */
function announced(url: string, token: string, size: number): Promise<unknown[]> {
  const headers = { authorization: `Bearer ${token}`, 'content-length': size }
  return new Promise((resolve, reject) => {
    const sent = request(url, { method: 'POST', headers }, async (response) => {
      const { code } = JSON.parse(Buffer.concat(await response.toArray()).toString())
      sent.destroy()
      resolve([response.statusCode, code])
    })
    sent.on('error', reject).flushHeaders()
  })
}

async function heard(profile: string, total: number): Promise<string[]> {
  const listened = await machine.run(['listen', '--count', String(total), '--json', '--profile', profile])
  return jsonLinesOf(listened).map(({ text }) => text)
}

/** Reads events of the stream. */
async function* eventsOf(url: string, token: string, signal: AbortSignal) {
  const response = await fetch(`${url}/v1/messages`, { headers: { authorization: `Bearer ${token}` }, signal })
  let rest = ''
  for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) {
    const blocks = (rest + chunk).split('\n\n')
    rest = blocks.pop()!
    for (const block of blocks) {
      const data = /^data: (.*)$/m.exec(block)?.[1]
      if (data) yield JSON.parse(data)
    }
  }
}

const say = (to: string, text: string) => machine.run(['send', to, text, '--profile', 'bob'])

test('a program sends, once per idempotency key, also if the gateway is killed in between', async () => {
  const { name, running, url } = await startGateway()
  const token = await tokenOf(name, '--to', 'bob')
  const message = { to: 'bob', text: 'order 7' }
  const key = { 'idempotency-key': 'order-7' }
  const first = await call(`${url}/v1/messages`, token, message, key)
  expect(first).toMatchObject({ status: 200, isStored: true, isRepeated: false })
  expect(await call(`${url}/v1/messages`, token, message, key)).toMatchObject({
    envelopeId: first.envelopeId,
    isRepeated: true,
  })
  running.child.kill('SIGKILL')
  await running.ended()
  const next = await startAs(name)
  expect(await call(`${next.url}/v1/messages`, token, message, key)).toMatchObject({ isRepeated: true })
  expect(await call(`${next.url}/v1/messages`, token, { ...message, text: 'other' }, key)).toMatchObject({
    status: 409,
    code: 'key_reused',
  })
  expect(await call(`${next.url}/v1/messages`, token, { to: 'bob', text: 'last' })).toMatchObject({ status: 200 })
  expect(await call(`${next.url}/v1/messages`, token, { to: 'bob/none', text: 'x' })).toMatchObject({
    code: 'unknown_device',
  })
  expect(await heard('bob', 2)).toEqual(['order 7', 'last'])
})

test('each bad call gets a status, a code and a sentence', async () => {
  const { name, url } = await startGateway()
  const others = await tokenOf('bob')
  const token = await tokenOf(name, '--to', 'bob')
  const message = { to: 'bob', text: 'x' }
  const outcome = async (...given: Parameters<typeof call>) => {
    const { status, code, message: sentence } = await call(...given)
    expect(sentence).toMatch(/^[A-Z].*\.$/s)
    return [status, code]
  }
  const messages = `${url}/v1/messages`
  expect(await outcome(messages, null, message)).toEqual([401, 'token_invalid'])
  expect(await outcome(messages, 'wrong', message)).toEqual([401, 'token_invalid'])
  expect(await outcome(messages, others, message)).toEqual([401, 'token_invalid'])
  expect(await outcome(messages, token, { ...message, to: 'alice' })).toEqual([403, 'recipient_not_allowed'])
  expect(await outcome(messages, token, { ...message, to: 'nobody' })).toEqual([404, 'name_unknown'])
  expect(await outcome(messages, token, { to: 'bob' })).toEqual([400, 'request_malformed'])
  expect(await outcome(messages, token, { ...message, surprise: 1 })).toEqual([400, 'request_malformed'])
  expect(await announced(messages, token, 97 * 2 ** 20)).toEqual([413, 'body_too_large'])
  expect(await announced(messages, 'wrong', 97 * 2 ** 20)).toEqual([401, 'token_invalid'])
  expect(await outcome(messages, token, { ...message, to: ['bob', 'alice'] })).toEqual([403, 'recipient_not_allowed'])
  expect(await outcome(messages, token)).toEqual([403, 'receiving_not_allowed'])
  expect(await outcome(`${messages}/${'0'.repeat(32)}/settle`, token, {})).toEqual([403, 'receiving_not_allowed'])
  expect(await outcome(messages, token, message, { origin: 'https://example.com' })).toEqual([403, 'origin_refused'])
  expect(await outcome(messages, token, message, { host: 'evil.example' })).toEqual([403, 'origin_refused'])
  expect(await outcome(`${url}/v2`, token)).toEqual([404, 'not_found'])
  const removed = await machine.run(['gateway', 'remove', `t${count}`, '--profile', name])
  expect(removed.code, removed.stderr).toBe(0)
  expect(await outcome(messages, token, message)).toEqual([401, 'token_invalid'])
  const hook = await machine.run(['gateway', 'hook', 'x', '--to', 'bobb', '--profile', name, '--json'])
  expect([failureOf(hook), hook.stderr]).toEqual([[3, 'name_unknown'], expect.stringContaining('Did you mean bob?')])
  const forward = (target: string) => machine.run(['gateway', 'forward', 'x', target, '--profile', name, '--json'])
  expect(failureOf(await forward('http://example.com/'))).toEqual([2, 'usage'])
})

test('a message goes to one open stream, and to another one if the first disconnects', async () => {
  const { name, url } = await startGateway()
  const token = await tokenOf(name, '--receive')
  const first = new AbortController()
  const events = eventsOf(url, token, first.signal)
  await say(name, 'question')
  const { value: message } = await events.next()
  expect(message).toMatchObject({ name: 'bob', text: 'question', attempt: 1 })
  first.abort()
  const second = new AbortController()
  const others = eventsOf(url, token, second.signal)
  expect((await others.next()).value).toMatchObject({ messageId: message.messageId, attempt: 1 })
  const path = `${url}/v1/messages/${message.messageId}`
  expect(await call(`${path}/reply`, token, { text: 'answer' })).toMatchObject({ status: 200 })
  expect(await call(`${path}/settle`, token, {})).toMatchObject({ outcome: 'settled' })
  expect(await call(`${path}/settle`, token, {})).toMatchObject({ status: 404, code: 'message_unknown' })
  expect(await heard('bob', 1)).toEqual(['answer'])
  await say(name, 'later')
  const later = (await others.next()).value
  expect(await call(`${url}/v1/messages/${later.messageId}/retry`, token, { afterSeconds: 0 })).toMatchObject({
    outcome: 'returned',
  })
  expect((await others.next()).value).toMatchObject({ text: 'later', attempt: 2 })
  second.abort()
})

interface Received {
  readonly headers: Record<string, string>
  readonly body: string
}

/** Serves a webhook that answers with these statuses, then with 200. */
async function startWebhook(statuses: number[]) {
  const calls: Received[] = []
  const server: Server = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    calls.push({ headers: request.headers as Record<string, string>, body })
    response.writeHead(statuses.shift() ?? 200).end()
    for (const wake of waiting.splice(0)) wake()
  })
  const waiting: (() => void)[] = []
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    until: async (total: number) => {
      while (calls.length < total) await new Promise<void>((resolve) => waiting.push(resolve))
      return calls
    },
    [Symbol.dispose]: () => void server.close(),
  }
}

test('webhooks are signed in both directions, and a failed call is repeated', async () => {
  const { name, url } = await startGateway()
  using webhook = await startWebhook([500])
  const forwarded = await machine.run(['gateway', 'forward', 'out', webhook.url, '--profile', name, '--json'])
  await say(name, 'please')
  const [failed, repeated] = await webhook.until(2)
  for (const { headers, body } of [failed!, repeated!])
    expect(new Webhook(jsonOf(forwarded).secret).verify(body, headers)).toMatchObject({ text: 'please', name: 'bob' })
  expect(failed!.headers['webhook-id']).toBe(repeated!.headers['webhook-id'])

  const { secret, path } = jsonOf(
    await machine.run(['gateway', 'hook', 'ci', '--to', 'bob', '--profile', name, '--json']),
  )
  const deliver = async (body: string, at = new Date(), by = secret) => {
    const headers = {
      'webhook-id': 'msg_1',
      'webhook-timestamp': String(Math.floor(at.getTime() / 1000)),
      'webhook-signature': new Webhook(by).sign('msg_1', at, body),
    }
    const response = await fetch(url + path, { method: 'POST', headers, body })
    return [response.status, ((await response.json()) as { code?: string }).code]
  }
  expect(await deliver('{"build":7}')).toEqual([200, undefined])
  expect(await deliver('{"build":7}')).toEqual([200, undefined])
  expect(await deliver('{"build":8}')).toEqual([409, 'key_reused'])
  expect(await deliver('{}', new Date(Date.now() - 600_000))).toEqual([401, 'signature_invalid'])
  expect(await deliver('{}', new Date(), `whsec_${btoa('x'.repeat(24))}`)).toEqual([401, 'signature_invalid'])
  await machine.run(['send', 'bob', 'end', '--profile', name])
  expect(await heard('bob', 2)).toEqual(['{"build":7}', 'end'])
})

test('only this account can open the socket, and a second gateway does not take it', async () => {
  const path = join(machine.folder, 'gw.sock')
  await letIn(machine, 'sock')
  const start = (): Running => machine.start(['gateway', '--socket', path, '--profile', 'sock'])
  const running = start()
  await running.until('it listens', ({ stderr }) => stderr.includes('gateway at'))
  expect((await stat(path)).mode & 0o777).toBe(0o600)
  const token = await tokenOf('sock')
  const response = await fetch('http://gateway/v1/status', {
    unix: path,
    headers: { authorization: `Bearer ${token}` },
  })
  expect(await response.json()).toMatchObject({ isOnline: expect.any(Boolean), open: 0 })
  const other = await machine.run(['gateway', '--socket', path, '--profile', 'bob', '--json'])
  expect(failureOf(other)).toEqual([5, 'port_taken'])
})

test('a long text is sent as a file, once per key, and the recipient of a stream fetches it', async () => {
  const { name, url } = await startGateway()
  const token = await tokenOf(name, '--receive')
  const text = `begin ${'x'.repeat(10 * 2 ** 20)} end`
  const key = { 'idempotency-key': 'long' }
  const send = () => call(`${url}/v1/messages`, token, { to: ['bob', name], text }, key)
  const { recipients, status } = (await send()) as unknown as Recipients
  expect([status, recipients]).toMatchObject([200, [{ to: 'bob', isStored: true, code: null }, { to: name }]])
  const again = (await send()) as unknown as Recipients
  expect(again.recipients.map(({ envelopeId, isRepeated }) => [envelopeId, isRepeated])).toEqual(
    recipients.map(({ envelopeId }) => [envelopeId, true]),
  )
  const { signal } = new AbortController()
  const { value: message } = await eventsOf(url, token, signal).next()
  expect(message).toMatchObject({ text: expect.stringMatching(/^begin x+\n\[…\]/), file: { bytes: text.length } })
  const fetched = await fetch(`${url}/v1/messages/${message.messageId}/file`, {
    headers: { authorization: `Bearer ${token}` },
  })
  expect(await fetched.text()).toBe(text)
  await call(`${url}/v1/messages/${message.messageId}/settle`, token, {})
  const gone = await call(`${url}/v1/messages/${message.messageId}/file`, token)
  expect([gone.status, gone.code]).toEqual([404, 'message_unknown'])
  const folder = join(machine.folder, 'long')
  const saved = jsonOf(await machine.run(['listen', '--count', '1', '--json', '--files', folder, '--profile', 'bob']))
  expect(await Bun.file(saved.file.path).text()).toBe(text)
})

interface Recipients {
  readonly status: number
  readonly recipients: readonly { readonly envelopeId: string; readonly isRepeated: boolean }[]
}

test('a command that fails at its start leaves no session behind', async () => {
  const { name, url } = await startGateway()
  const { port } = new URL(url)
  const start = async (command: string, ...words: string[]) =>
    failureOf(await machine.run([command, '--as', 'ghost', '--profile', name, '--json', ...words]))
  expect(await start('gateway', '--port', port)).toEqual([5, 'port_taken'])
  expect(await start('listen', '--pool', 'nosuch')).toEqual([3, 'unknown_pool'])
  expect(await start('work', '--pool', 'nosuch', '--', 'cat')).toEqual([3, 'unknown_pool'])
  const sessions = jsonLinesOf(await machine.run(['sessions', '--profile', name, '--json']))
  expect(sessions.map(({ label }) => label)).toEqual(['gateway'])
})
