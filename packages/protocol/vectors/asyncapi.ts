/**
 * Describes the socket as an AsyncAPI 3 document: the frames that a broker receives, its replies, and the frames that
 * it sends without a request. The table of frames defines the payloads.
 */
import { clientFrames, type FrameKind, SUBPROTOCOLS, serverFrames } from '../src/index.ts'
import { frameSchemas } from './json-schema.ts'
import { MEANINGS } from './meanings.ts'

/** The possible replies to each client frame. The broker sends its other frames unprompted. */
const ANSWERS: Readonly<Record<string, readonly string[]>> = {
  auth: ['welcome', 'moved', 'refused'],
  enrol: ['enrolled', 'refused'],
  enrolDevice: ['enrolled', 'refused'],
  send: ['ack', 'nack'],
  sendWith: ['ack', 'nack'],
  broadcast: ['ack', 'nack'],
  sendPool: ['ack', 'nack'],
  lookup: ['directory'],
  lookupHistory: ['keyHistory'],
  ping: ['pong'],
  members: ['roster'],
  revoke: ['revoked'],
  watch: ['presence'],
  setGroup: ['groupSet'],
  setPool: ['groupSet'],
  groups: ['groupList'],
  pools: ['groupList'],
  joinPool: ['poolJoined'],
  consent: ['consented'],
  bind: ['bound'],
  devices: ['deviceList'],
  removeDevice: ['deviceRemoved'],
  succeed: ['succeeded'],
}
const ALSO_UNASKED = ['refused', 'moved', 'presence', 'poolJoined']

const DESCRIPTION =
  `A durable, end-to-end encrypted message broker. This describes its socket in the JSON form, under the
subprotocol \`sealpost.v1.json\`; under \`sealpost.v1\` the same frames go in a binary form. docs/PROTOCOL.md has that form,
the handshake, and what each message means and promises.`.replaceAll('\n', ' ')

const CHANNEL = '#/channels/socket'
const SCHEMAS = '#/components/schemas/'

export function asyncApiText(): string {
  const document = {
    asyncapi: '3.0.0',
    info: {
      title: 'Sealpost over WebSocket',
      version: '1',
      description: DESCRIPTION,
      license: { name: 'MIT' },
    },
    defaultContentType: 'application/json',
    servers: {
      broker: {
        host: '127.0.0.1:7450',
        protocol: 'ws',
        description: 'As `sealpost up` starts it. Over a network: wss, behind whatever ends TLS.',
      },
    },
    channels: { socket: channel() },
    operations: operations(),
    components: {
      messages: Object.fromEntries([...serverFrames, ...clientFrames].map((kind) => [kind.type, message(kind)])),
      schemas: frameSchemas(SCHEMAS),
    },
  }
  return `${JSON.stringify(document, null, 2)}\n`
}

function channel() {
  const names = [...serverFrames, ...clientFrames].map(({ type }) => type)
  return {
    address: '/v1/ws',
    description: 'One connection of one peer.',
    messages: Object.fromEntries(names.map((type) => [type, { $ref: `#/components/messages/${type}` }])),
    bindings: {
      ws: {
        method: 'GET',
        headers: {
          type: 'object',
          properties: { 'Sec-WebSocket-Protocol': { type: 'string', enum: Object.keys(SUBPROTOCOLS) } },
          required: ['Sec-WebSocket-Protocol'],
        },
        bindingVersion: '0.1.0',
      },
    },
  }
}

function message({ type, body }: FrameKind) {
  const hasRef = body.shape.kind === 'struct' && body.shape.fields.some(([name]) => name === 'ref')
  return {
    name: type,
    summary: MEANINGS[type]!.about,
    payload: { $ref: SCHEMAS + type },
    ...(hasRef ? { correlationId: { location: '$message.payload#/ref' } } : {}),
  }
}

function operations() {
  const answers = new Set(Object.values(ANSWERS).flat())
  const unasked = serverFrames.filter(({ type }) => !answers.has(type) || ALSO_UNASKED.includes(type))
  return {
    ...Object.fromEntries(clientFrames.map((kind) => [kind.type, received(kind)])),
    ...Object.fromEntries(unasked.map((kind) => [kind.type, { action: 'send', ...about(kind) }])),
  }
}

function received(kind: FrameKind) {
  const answers = ANSWERS[kind.type]
  const reply = answers && { channel: { $ref: CHANNEL }, messages: answers.map(channelMessage) }
  return { action: 'receive', ...about(kind), ...(reply ? { reply } : {}) }
}

const about = ({ type }: FrameKind) => ({
  channel: { $ref: CHANNEL },
  summary: MEANINGS[type]!.about,
  messages: [channelMessage(type)],
})

const channelMessage = (type: string) => ({ $ref: `${CHANNEL}/messages/${type}` })
