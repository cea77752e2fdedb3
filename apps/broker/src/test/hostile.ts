/**
 * Provides tests with rows of hostile inputs, the arena that runs them, and functions that send them and return the
 * reply as a short string.
 */
import { encode, type Form, type FrameOf } from '@sealpost/protocol'
import { authFrame, envelopeTo, type HttpAnswer, rawHttp, sendFrame, upgradeRequest, WireClient } from './wire.ts'
import { type Place, World } from './world.ts'

export interface HostileRow {
  /** The number in the list of hostile inputs, which several rows may share. */
  readonly id: string
  readonly input: string
  /** Sends the input. Returns the reply. */
  readonly act: Act
  readonly answer: string
  /** The number of envelopes that the input leaves in the queue. */
  readonly stores: number
}

export type Act = (arena: Arena) => Promise<string>
type RowTuple = readonly [id: string, input: string, act: Act, answer: string, stores?: number]

export const hostileRows = (tuples: readonly RowTuple[]): HostileRow[] =>
  tuples.map(([id, input, act, answer, stores = 0]) => ({ id, input, act, answer, stores }))

/** A string planted in every input, which the log must not contain. */
export const MARK = 'canary7f3a'
export const ORIGIN = 'https://console.example'

/** A broker, two peers that exchange messages during the attack, and the attacker. */
export class Arena implements AsyncDisposable {
  readonly world: World
  private readonly places: readonly [Place, Place]
  private readonly bystanders: readonly [WireClient, WireClient]

  private constructor(world: World, places: Arena['places'], bystanders: Arena['bystanders']) {
    this.world = world
    this.places = places
    this.bystanders = bystanders
  }

  static async open(env: Record<string, string> = {}): Promise<Arena> {
    const world = await World.open({ ORIGINS: ORIGIN, LOG_LEVEL: 'debug', ...env })
    const places = await world.enrolMany(2)
    return new Arena(world, places, [await WireClient.enter(places[0]), await WireClient.enter(places[1])])
  }

  get port(): number {
    return this.world.broker.port
  }

  async session(form: Form = 'binary'): Promise<WireClient> {
    return this.sessionOf(await this.world.enrol(), form)
  }
  sessionOf(place: Place, form: Form = 'binary'): Promise<WireClient> {
    return WireClient.enter(place, { form })
  }

  /** Opens a connection without an `auth`. */
  async stranger(form: Form = 'binary'): Promise<WireClient> {
    const client = await WireClient.open(this.world.broker.url, form)
    await client.next('hello')
    return client
  }

  /** Throws unless the process is alive, the bystanders' sessions work and the log is clean. */
  async checkUnharmed(): Promise<void> {
    const { broker } = this.world
    if (!broker.isAlive) throw new Error(`the broker ended: ${broker.output.slice(-2000)}`)
    await this.exchangeMail()
    const faults = broker.log.filter(({ level }) => level === 'error' || level === 'fatal')
    if (faults.length > 0) throw new Error(`the broker met a fault: ${JSON.stringify(faults)}`)
    if (broker.output.includes(MARK)) throw new Error('a hostile input stands in the log')
  }

  /** Sends a message from each bystander to the other. */
  async exchangeMail(): Promise<void> {
    await this.exchange(0, 1)
    await this.exchange(1, 0)
  }

  async rows(): Promise<number> {
    return (await this.world.count('message_queue')) + (await this.world.count('dead_letter'))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const bystander of this.bystanders) bystander.destroy()
    await this.world[Symbol.asyncDispose]()
  }

  private async exchange(from: 0 | 1, to: 0 | 1): Promise<void> {
    const [sender, recipient] = [this.bystanders[from], this.bystanders[to]]
    const item = envelopeTo(this.places[to])
    sender.send(sendFrame(item))
    await sender.next('ack')
    const [delivery] = await recipient.deliveries(1)
    if (delivery!.envelopeId !== item.envelopeId) throw new Error('a bystander got other mail than its own')
    recipient.send({ type: 'settle', ids: [delivery!.id] })
    await recipient.echo()
  }
}

/** Returns an act that sends an upgrade with these headers. */
export const upgrade =
  (...headers: string[]): Act =>
  async ({ world }) =>
    statusOf(await rawHttp(world.broker.port, upgradeRequest(world.broker.authority, headers)))

/** Returns an act that sends an upgrade with this first line and these headers. */
export const upgradeLine =
  (line: string, ...headers: string[]): Act =>
  async ({ world }) =>
    statusOf(await rawHttp(world.broker.port, upgradeRequest(world.broker.authority, headers, line)))

/** Returns an act that sends an upgrade without a header, or with `instead`. */
export const upgradeWithout =
  (name: string, instead = ''): Act =>
  async ({ world }) => {
    const lines = upgradeRequest(world.broker.authority).split('\r\n')
    const changed = lines.flatMap((line) => (line.startsWith(`${name}:`) ? (instead ? [instead] : []) : [line]))
    return statusOf(await rawHttp(world.broker.port, changed.join('\r\n')))
  }

/** Returns an act that sends a raw request in which `HOST` is the broker's name. */
export const http =
  (...lines: string[]): Act =>
  async ({ world }) =>
    statusOf(
      await rawHttp(world.broker.port, `${lines.join('\r\n').replaceAll('HOST', world.broker.authority)}\r\n\r\n`),
    )

/** Returns `400 bad_upgrade`, `101 sealpost.v1`, or the status alone if the server itself replied. */
export function statusOf({ status, headers, body }: HttpAnswer): string {
  if (status === 101) return `101 ${headers.get('sec-websocket-protocol')}`
  const code = body.startsWith('{') ? (JSON.parse(body) as { code?: string }).code : undefined
  return code ? `${status} ${code}` : String(status)
}

type Saying = (client: WireClient) => void

/** Returns the close code and reason: `4400 frame_malformed`, or the number alone if the server itself closed. */
export const closing = async (client: WireClient): Promise<string> => {
  const { code, reason } = await client.closed
  return code === 1003 || code >= 1011 ? `${code} ${reason}` : String(code)
}

/** Returns an act that runs `say` in a session and resolves with the close code. */
export const inSession =
  (say: Saying, form: Form = 'binary'): Act =>
  async (arena) => {
    const client = await arena.session(form)
    say(client)
    return closing(client)
  }

/** Returns an act that sends this message in a JSON session. */
export const inJson = (wire: string | Uint8Array): Act => inSession((client) => client.sendWire(wire), 'json')
export const inBinary = (wire: string | Uint8Array): Act => inSession((client) => client.sendWire(wire))
/** Returns an act that sends raw bytes on the socket. */
export const below = (...bytes: (string | Uint8Array)[]): Act => inSession(onSocket(bytes))
export const belowText = (...bytes: (string | Uint8Array)[]): Act => inSession(onSocket(bytes), 'json')

const onSocket =
  (parts: readonly (string | Uint8Array)[]): Saying =>
  (client) => {
    for (const part of parts) client.sendBytes(typeof part === 'string' ? Buffer.from(part, 'hex') : part)
  }

/** Returns an act that runs `say` before authentication. */
export const early =
  (say: Saying, form: Form = 'binary'): Act =>
  async (arena) => {
    const client = await arena.stranger(form)
    say(client)
    return closing(client)
  }

/** Returns an act that sends an `auth` with changed or wrongly signed fields. */
export const auth =
  (changedFor: (arena: Arena) => Parameters<typeof authFrame>[2] | Promise<Parameters<typeof authFrame>[2]>): Act =>
  async (arena) =>
    authAnswer(await arena.world.enrol(), await changedFor(arena))

export async function authAnswer(place: Place, changed: Parameters<typeof authFrame>[2] = {}): Promise<string> {
  const client = await WireClient.open(place.url)
  client.send(authFrame(place, await client.next('hello'), changed))
  return closing(client)
}

/** Returns an act that sends such an `auth` as unusual JSON. */
export const authText =
  (change: (text: string) => string): Act =>
  async (arena) => {
    const place = await arena.world.enrol()
    const client = await WireClient.open(place.url, 'json')
    client.sendWire(change(encode('json', authFrame(place, await client.next('hello'))) as string))
    return closing(client)
  }

type SendItem = FrameOf<'send'>['envelopes'][number]

/** Returns each envelope's outcome: `stored`, `duplicate` or the nack's code. */
export async function answersTo(client: WireClient, ...items: SendItem[]): Promise<string> {
  client.send(sendFrame(...items))
  const answers = new Map<string, string>()
  while (items.some(({ envelopeId }) => !answers.has(envelopeId))) {
    const frame = await client.next('ack', 'nack')
    for (const item of frame.items)
      answers.set(item.envelopeId, 'code' in item ? item.code : item.isDuplicate ? 'duplicate' : 'stored')
  }
  return items.map(({ envelopeId }) => answers.get(envelopeId)).join(', ')
}

/** Returns an act that sends envelopes to an absent member in a session that survives. */
export const sending =
  (itemsFor: (to: Place, arena: Arena) => readonly SendItem[] | Promise<readonly SendItem[]>): Act =>
  async (arena) => {
    const client = await arena.session()
    const answers = await answersTo(client, ...(await itemsFor(await arena.world.enrol(), arena)))
    await client.echo()
    client.destroy()
    return answers
  }
