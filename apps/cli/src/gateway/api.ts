/** Defines the gateway's HTTP interface, which seals and opens messages for any program that speaks HTTP. */
import { createHash } from 'node:crypto'
import { PRIORITIES } from '@sealpost/protocol'
import { type Message, type PeerKey, type Receipt, SealpostError } from '@sealpost/sdk'
import { type Attachment, attachmentOf } from '@sealpost/sdk/attachments'
import type { OnceOutcome } from '@sealpost/sdk/once'
import { OperatingError } from '@sealpost/std'
import { type Context, Hono, type MiddlewareHandler } from 'hono'
import { bodyLimit } from 'hono/body-limit'
import { streamSSE } from 'hono/streaming'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { Webhook } from 'standardwebhooks'
import { z } from 'zod'
import { type Content, contentOf, TEXT_BYTES_MAX, tooLarge } from '../messages/content.ts'
import { callerOf, type GatewayCaller, type GatewayEntry, type IncomingHook } from './config.ts'
import type { GatewayInbox, HeldMessage } from './inbox.ts'

export interface GatewayTerms {
  readonly content: Content
  readonly priority: (typeof PRIORITIES)[number]
  readonly ttlSeconds: number
  readonly thread?: string
}

export interface GatewaySend extends GatewayTerms {
  readonly to: readonly PeerKey[]
  /** Identifies the request in a repeated call. */
  readonly fingerprint: string
  /** Returns the idempotency key of the message to this recipient. */
  keyOf(to: PeerKey): string
}

export interface GatewayPorts {
  readonly inbox: GatewayInbox
  entries(): Promise<readonly GatewayEntry[]>
  /** Returns the key of a recipient. @throws OperatingError `name_unknown` and the like */
  resolve(word: string): Promise<PeerKey>
  /** Resolves with one outcome for each recipient, in order. */
  send(send: GatewaySend): Promise<readonly PromiseSettledResult<OnceOutcome>[]>
  request(to: PeerKey, terms: GatewayTerms, timeoutMs: number): Promise<object>
  reply(message: Message, content: Content, isError: boolean): Promise<Receipt>
  /** Yields the file of a message. */
  fileOf(message: Message, attachment: Attachment): AsyncGenerator<Uint8Array, void, undefined>
  peers(): Promise<object>
  isOnline(): boolean
  /** Formats a message as the body of events and webhooks. */
  contentOf(held: HeldMessage): Promise<object>
}

/** The statuses of codes that are not 400. */
const STATUS: Readonly<Record<string, ContentfulStatusCode>> = {
  ...{ token_invalid: 401, signature_invalid: 401 },
  ...{ recipient_not_allowed: 403, receiving_not_allowed: 403, origin_refused: 403, not_allowed: 403 },
  ...{ name_unknown: 404, unknown_recipient: 404, unknown_device: 404, message_unknown: 404, hook_unknown: 404 },
  ...{
    file_missing: 404,
    attachment_unknown: 404,
    attachment_too_large: 413,
    quota_exceeded: 507,
    mesh_quota_exceeded: 507,
  },
  ...{ key_reused: 409, no_auto_reply: 409, no_responder: 409, body_too_large: 413, timeout: 504 },
  ...{ unreachable: 503, connection_lost: 503, outbox_full: 503, kept_for_later: 202 },
}

/** The largest request: a text in base64 or as JSON, and its terms. */
const REQUEST_BYTES_MAX = 1.5 * TEXT_BYTES_MAX
const RECIPIENTS_MAX = 100
/** How long a send waits for the broker. After that, the profile sends the message later. */
const STORED_WITHIN_MS = 10_000
const KEEP_ALIVE_MS = 15_000

const recipient = z.string().min(1).max(200)
const fields = z.strictObject({
  to: recipient,
  text: z.string().optional(),
  bodyBase64: z.base64().optional(),
  priority: z.enum(PRIORITIES).default('next'),
  ttlSeconds: z.int().min(0).default(0),
  thread: z
    .string()
    .regex(/^[0-9a-f]{32}$/)
    .optional(),
})
const hasOneBody = ({ text, bodyBase64 }: Pick<z.infer<typeof fields>, 'text' | 'bodyBase64'>) =>
  (text === undefined) !== (bodyBase64 === undefined)
const ONE_BODY = 'it must have either text or bodyBase64'
const contents = fields
  .extend({ to: z.union([recipient, z.array(recipient).min(1).max(RECIPIENTS_MAX)]) })
  .refine(hasOneBody, ONE_BODY)
const question = fields.extend({ timeoutMs: z.int().min(1).max(600_000).default(30_000) }).refine(hasOneBody, ONE_BODY)
const ends = {
  retry: z.strictObject({ afterSeconds: z.number().min(0).max(300).default(60) }),
  reject: z.strictObject({ reason: z.string().max(120).default('') }),
  reply: z.strictObject({ text: z.string(), isError: z.boolean().default(false) }),
}

type Env = { Variables: { caller: GatewayCaller; hook: IncomingHook } }

export function gatewayApi(ports: GatewayPorts): Hono<Env> {
  const app = new Hono<Env>()
  app.onError((error, c) => refusal(c, error))
  app.notFound((c) => refusal(c, new OperatingError('not_found', 'The gateway has no such path.'), 404))
  app.use(async (c, next) => {
    checkOrigin(c)
    await next()
  })
  // Bodies are read only of callers that are known.
  const limit = bodyLimit({ maxSize: REQUEST_BYTES_MAX, onError: (c) => refusal(c, tooLarge(TEXT_BYTES_MAX)) })
  const findHook: MiddlewareHandler<Env> = async (c, next) => {
    c.set('hook', await hookOf(c.req.param('name')!, ports))
    await next()
  }
  const authenticate: MiddlewareHandler<Env> = async (c, next) => {
    c.set('caller', await authenticated(c, ports))
    await next()
  }
  app.post('/hooks/:name', findHook, limit, (c) => receiveHook(c, ports))
  app.use('/v1/*', authenticate, limit)
  app.get('/v1/status', (c) =>
    c.json({
      caller: c.var.caller.name,
      isOnline: ports.isOnline(),
      waiting: ports.inbox.waiting,
      open: ports.inbox.open,
    }),
  )
  app.get('/v1/peers', async (c) => c.json({ peers: await ports.peers() }))
  app.post('/v1/messages', (c) => send(c, ports))
  app.post('/v1/requests', (c) => request(c, ports))
  app.get('/v1/messages', (c) => events(c, ports))
  app.get('/v1/messages/:id/file', (c) => download(c, ports))
  app.post('/v1/messages/:id/:end', (c) => endMessage(c, ports))
  return app
}

/** Refuses calls from web pages, which can reach loopback addresses. @throws OperatingError `origin_refused` */
function checkOrigin(c: Context): void {
  const host = (c.req.header('host') ?? '').replace(/:\d+$/, '')
  const isLocal = ['localhost', '127.0.0.1', '[::1]', 'gateway'].includes(host)
  if (!isLocal || c.req.header('origin') !== undefined)
    throw new OperatingError('origin_refused', 'The gateway accepts calls only from programs on this machine.')
}

async function authenticated(c: Context, ports: GatewayPorts): Promise<GatewayCaller> {
  const [, token = ''] = /^Bearer (\S+)$/.exec(c.req.header('authorization') ?? '') ?? []
  const caller = token === '' ? undefined : callerOf(await ports.entries(), token)
  if (caller) return caller
  throw new OperatingError('token_invalid', 'Send a token of `sealpost gateway token` in the header Authorization.')
}

async function parsed<T>(c: Context, schema: z.ZodType<T>): Promise<T> {
  const text = await c.req.text()
  const { success, data, error } = schema.safeParse(jsonOf(text === '' ? '{}' : text))
  if (success) return data
  const [{ path, message } = { path: [], message: 'unknown' }] = error.issues
  const where = path.length > 0 ? `The field ${path.join('.')}` : 'The body'
  throw new OperatingError('request_malformed', `${where} is invalid (${message.replace(/\.$/, '')}).`)
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new OperatingError('request_malformed', 'The body is not JSON.')
  }
}

/** @throws OperatingError `body_too_large` */
function termsOf({ text, bodyBase64, thread, priority, ttlSeconds }: Omit<z.infer<typeof fields>, 'to'>): GatewayTerms {
  const bytes = text === undefined ? Buffer.from(bodyBase64!, 'base64') : new TextEncoder().encode(text)
  return { content: boundedContent(bytes), priority, ttlSeconds, ...(thread !== undefined && { thread }) }
}

function boundedContent(bytes: Uint8Array): Content {
  if (bytes.length > TEXT_BYTES_MAX) throw tooLarge(TEXT_BYTES_MAX)
  return contentOf(bytes)
}

/** @throws OperatingError `recipient_not_allowed`, `name_unknown`, … */
async function recipientOf(word: string, ports: GatewayPorts, caller: GatewayCaller): Promise<PeerKey> {
  const key = await ports.resolve(word)
  const { to } = caller
  if (to === null) return key
  // A session or device of an allowed recipient is allowed.
  const at = word.lastIndexOf('/')
  const named = at > 0 ? [key, await ports.resolve(word.slice(0, at))] : [key]
  for (const each of to) if (named.includes((await ports.resolve(each).catch(() => null))!)) return key
  throw new OperatingError('recipient_not_allowed', `Nothing was sent: this caller may write only to ${to.join(', ')}.`)
}

async function send(c: Context<Env>, ports: GatewayPorts): Promise<Response> {
  const { caller } = c.var
  const given = await parsed(c, contents)
  const terms = { ...termsOf(given), fingerprint: fingerprintOf(given) }
  const header = c.req.header('idempotency-key')
  const key = header === undefined ? crypto.randomUUID() : keyOf(`token ${caller.name}`, header)
  if (typeof given.to === 'string') {
    const to = [await recipientOf(given.to, ports, caller)]
    return c.json(...(await reportOnly(await ports.send({ ...terms, to, keyOf: () => key }))))
  }
  const words = new Map<PeerKey, string>()
  for (const word of given.to) words.set(await recipientOf(word, ports, caller), word)
  const sends = await ports.send({ ...terms, to: [...words.keys()], keyOf: (to) => fingerprintOf([key, to]) })
  return c.json(...(await reportEach([...words.values()], sends)))
}

/** Returns an idempotency key that no other caller can use. @throws OperatingError `request_malformed` */
function keyOf(owner: string, key: string): string {
  if (key.length >= 1 && key.length <= 150) return `${owner} ${key}`
  throw new OperatingError('request_malformed', 'An idempotency key has 1 to 150 characters.')
}

const fingerprintOf = (given: unknown): string => createHash('sha256').update(JSON.stringify(given)).digest('hex')

type Outcomes = readonly PromiseSettledResult<OnceOutcome>[]

function reportOnly([outcome]: Outcomes) {
  if (outcome!.status === 'rejected') throw outcome!.reason
  return reportOf(outcome!.value)
}

/** @throws the error of the first message if none was accepted */
async function reportEach(words: readonly string[], outcomes: Outcomes): Promise<[object, 200 | 202]> {
  const reports = await Promise.allSettled(outcomes.map((outcome) => reportOnly([outcome])))
  const [first] = reports
  if (first!.status === 'rejected' && reports.every(({ status }) => status === 'rejected')) throw first!.reason
  const recipients = reports.map((report, i) => ({
    to: words[i],
    ...(report.status === 'fulfilled' ? { ...report.value[0], code: null } : refusedFor(report.reason)),
  }))
  const isPending = reports.some((report) => report.status === 'fulfilled' && report.value[1] === 202)
  return [{ recipients }, isPending ? 202 : 200]
}

const refusedFor = ({ code = 'internal' }: { readonly code?: string }) => ({
  ...{ envelopeId: null, isStored: false, isRepeated: false, code },
})

/** Waits for the broker for a while. @throws the error with which the broker refused the message */
async function reportOf({ receipt, isRepeated, envelopeId }: OnceOutcome): Promise<[object, 200 | 202]> {
  const late = Promise.withResolvers<null>()
  const timer = setTimeout(() => late.resolve(null), STORED_WITHIN_MS)
  try {
    const stored = receipt === null ? null : await Promise.race([receipt, late.promise])
    const id = stored?.envelopeId ?? envelopeId
    return [{ envelopeId: id, isStored: id !== null, isRepeated }, id === null ? 202 : 200]
  } finally {
    clearTimeout(timer)
  }
}

async function request(c: Context<Env>, ports: GatewayPorts): Promise<Response> {
  const { timeoutMs, to, ...given } = await parsed(c, question)
  return c.json(await ports.request(await recipientOf(to, ports, c.var.caller), termsOf(given), timeoutMs))
}

function checkReceiver({ receives, name }: GatewayCaller): void {
  if (receives) return
  throw new OperatingError('receiving_not_allowed', `The token ${name} was created without --receive.`)
}

/** Streams messages as server-sent events. The caller ends each one with a call. */
function events(c: Context<Env>, { inbox, contentOf }: GatewayPorts): Response {
  checkReceiver(c.var.caller)
  return streamSSE(c, async (stream) => {
    const ended = Promise.withResolvers<void>()
    const write = async (held: HeldMessage) =>
      stream.writeSSE({ event: 'message', id: held.messageId, data: JSON.stringify(await contentOf(held)) })
    await stream.write(': open\n\n')
    const disconnect = inbox.connect((held) => {
      void write(held).catch(ended.resolve)
      return true
    })
    const beat = setInterval(() => void stream.write(': alive\n\n'), KEEP_ALIVE_MS)
    stream.onAbort(ended.resolve)
    await ended.promise
    clearInterval(beat)
    disconnect()
  })
}

/** Sends the file of an open message. */
async function download(c: Context<Env>, { inbox, fileOf }: GatewayPorts): Promise<Response> {
  checkReceiver(c.var.caller)
  const message = inbox.find(c.req.param('id')!)
  if (message.attachment === null) throw new OperatingError('file_missing', 'The message has no file.')
  const attachment = attachmentOf(message)
  if (!attachment) throw new OperatingError('attachment_unreadable', 'A later version of sealpost sent the file.')
  const pieces = fileOf(message, attachment)
  let next = await pieces.next() // reports a file that is lost before the response begins
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      if (next.done) return controller.close()
      controller.enqueue(next.value)
      next = await pieces.next()
    },
    cancel: () => pieces.return().then(() => undefined),
  })
  return c.body(body, 200, { 'content-type': 'application/octet-stream', 'content-length': String(attachment.bytes) })
}

async function endMessage(c: Context<Env>, { inbox, reply }: GatewayPorts): Promise<Response> {
  checkReceiver(c.var.caller)
  const id = c.req.param('id')!
  switch (c.req.param('end')) {
    case 'settle':
      inbox.finish(id, (message) => message.settle())
      return c.json({ messageId: id, outcome: 'settled' })
    case 'retry': {
      const { afterSeconds } = await parsed(c, ends.retry)
      inbox.finish(id, (message) => message.retry(afterSeconds * 1000))
      return c.json({ messageId: id, outcome: 'returned' })
    }
    case 'reject': {
      const { reason } = await parsed(c, ends.reject)
      inbox.finish(id, (message) => message.reject(reason))
      return c.json({ messageId: id, outcome: 'rejected' })
    }
    case 'reply': {
      const { text, isError } = await parsed(c, ends.reply)
      const { envelopeId } = await reply(inbox.find(id), boundedContent(new TextEncoder().encode(text)), isError)
      return c.json({ messageId: id, envelopeId })
    }
    default:
      throw new OperatingError('request_malformed', 'A message can be ended with settle, retry, reject or reply.')
  }
}

/** Sends the body of a signed webhook as a message, once per webhook id. */
async function receiveHook(c: Context<Env>, ports: GatewayPorts): Promise<Response> {
  const { hook } = c.var
  const text = await c.req.text()
  const key = keyOf(`hook ${hook.name}`, verifiedId(hook, text, c))
  const to = [await ports.resolve(hook.to)]
  const terms = { content: boundedContent(new TextEncoder().encode(text)), priority: 'next', ttlSeconds: 0 } as const
  const sends = await ports.send({ ...terms, to, keyOf: () => key, fingerprint: fingerprintOf(text) })
  return c.json(...(await reportOnly(sends)))
}

/** @throws OperatingError `hook_unknown` */
async function hookOf(name: string, ports: GatewayPorts): Promise<IncomingHook> {
  const isIt = (entry: GatewayEntry): entry is IncomingHook => entry.kind === 'hook' && entry.name === name
  const hook = (await ports.entries()).find(isIt)
  if (hook) return hook
  throw new OperatingError('hook_unknown', 'The gateway has no such webhook.')
}

/** Checks the signature and the age of a webhook call. @throws OperatingError `signature_invalid` */
function verifiedId({ secret }: IncomingHook, text: string, c: Context): string {
  const names = ['webhook-id', 'webhook-timestamp', 'webhook-signature']
  const headers = Object.fromEntries(names.map((name) => [name, c.req.header(name) ?? '']))
  try {
    new Webhook(secret).verify(text, headers, { jsonParse: false })
  } catch {
    throw new OperatingError('signature_invalid', 'The signature of the webhook is missing, invalid or too old.')
  }
  return headers['webhook-id']!
}

function refusal(c: Context, error: unknown, given?: ContentfulStatusCode): Response {
  if (!(error instanceof OperatingError || error instanceof SealpostError)) {
    return c.json({ code: 'internal', message: 'The gateway failed with an internal error.' }, 500)
  }
  const { code, message } = error
  const status = given ?? STATUS[code] ?? 400
  return c.json({ code, message }, status)
}
