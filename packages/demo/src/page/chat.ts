/** Holds the chat as an immutable value. Functions return the next one and use no platform API. */
import { type MemberEntry, type PeerKey, type SealpostCode, SealpostError } from '@sealpost/sdk'
import type { EnvelopeId, Millis } from '@sealpost/std'

export interface Chat {
  readonly me: { readonly key: PeerKey; readonly name: string }
  readonly link: LinkStatus
  /** All other peers by name, including former members with lines. */
  readonly peers: readonly ChatPartner[]
  readonly lines: ReadonlyMap<PeerKey, readonly ChatLine[]>
  /** The last line that was seen, by peer. */
  readonly readNos: ReadonlyMap<PeerKey, number>
  readonly open: PeerKey | null
  /** The announcement of lines in conversations that are not open. */
  readonly heard: string
  readonly notice: string | null
}

export type LinkStatus =
  | { readonly name: 'connecting' | 'online' | 'away' }
  /** The broker has refused this peer for good. */
  | { readonly name: 'over'; readonly reason: string }

export interface ChatPartner {
  readonly peer: PeerKey
  /** The name that the broker reports, which proves nothing. */
  readonly name: string
  readonly isMember: boolean
}

export type ChatLine = ReceivedLine | WrittenLine

interface AnyLine {
  /** Ascends in the order of arrival, over all conversations. */
  readonly no: number
  readonly peer: PeerKey
  readonly text: string
  /** When the line was written, according to its author's clock. */
  readonly atMs: Millis
}
export interface ReceivedLine extends AnyLine {
  readonly kind: 'received'
  readonly envelopeId: EnvelopeId
  readonly file?: LineFile
}
/** The file of a message, whose sender chose the name. */
export interface LineFile {
  readonly name: string
  readonly bytes: number
  /** `unreadable`: a later version wrote the reference. */
  readonly state: 'unsaved' | 'saving' | 'saved' | 'lost' | 'unreadable'
}
export interface WrittenLine extends AnyLine {
  readonly kind: 'written'
  readonly fate: Fate
}

export type Fate =
  /** Not in the outbox yet. */
  | { readonly name: 'keeping' }
  /** In the outbox under this number, but not stored by the broker. */
  | { readonly name: 'waiting'; readonly outboxNo: number }
  | { readonly name: 'stored' }
  /** The page was closed before the broker replied. */
  | { readonly name: 'unsure' }
  | { readonly name: 'failed'; readonly code: SealpostCode }

export function withLine(chat: Chat, line: ChatLine): Chat {
  const lines = new Map(chat.lines)
  lines.set(line.peer, [...linesWith(chat, line.peer).filter(({ no }) => no !== line.no), line].sort(byNo))
  const peers = chat.peers.some(({ peer }) => peer === line.peer)
    ? chat.peers
    : [...chat.peers, { peer: line.peer, name: '', isMember: false }]
  return { ...chat, lines, peers }
}

/** Adds a line, and announces it unless it is read out where it appears. */
export function withArrival(chat: Chat, line: ReceivedLine): Chat {
  const heard = chat.open === line.peer ? chat.heard : `New message from ${nameOf(chat, line.peer)}`
  return { ...withLine(chat, line), heard }
}

/** Replaces the members by those that the broker reports. */
export function withMembers(chat: Chat, members: readonly MemberEntry[]): Chat {
  const others = members.filter(({ peer }) => peer !== chat.me.key)
  const present = new Set(others.map(({ peer }) => peer))
  const gone = chat.peers.filter(({ peer }) => !present.has(peer) && linesWith(chat, peer).length > 0)
  const peers = [
    ...others.map(({ peer, name }) => ({ peer, name, isMember: true })),
    ...gone.map((peer) => ({ ...peer, isMember: false })),
  ]
  const isOpenThere = peers.some(({ peer }) => peer === chat.open)
  return { ...chat, peers: peers.sort(byName), open: isOpenThere ? chat.open : null }
}

/** A peer with its devices and sessions. */
export interface Contact {
  readonly user: ChatPartner
  readonly devices: readonly ChatPartner[]
}

/** Puts peers such as `bob/laptop-1` under `bob`. A device of a user that is not listed is a contact of its own. */
export function contactsOf({ peers }: Chat): Contact[] {
  const users = new Map(peers.map((peer) => [peer.name, { user: peer, devices: [] as ChatPartner[] }]))
  return peers.flatMap((peer) => {
    const owner = peer.name.includes('/') ? users.get(peer.name.split('/', 1)[0]!) : undefined
    owner?.devices.push(peer)
    const own = users.get(peer.name)
    return owner ? [] : [own?.user === peer ? own : { user: peer, devices: [] }]
  })
}

/** Returns the line of an earlier message. */
export function receivedLine(chat: Chat, peer: PeerKey, envelopeId: EnvelopeId): ReceivedLine | undefined {
  const isIt = (line: ChatLine): line is ReceivedLine => line.kind === 'received' && line.envelopeId === envelopeId
  return linesWith(chat, peer).find(isIt)
}

export function withRead(chat: Chat, peer: PeerKey): Chat {
  const last = linesWith(chat, peer).at(-1)
  return last ? { ...chat, readNos: new Map(chat.readNos).set(peer, last.no) } : chat
}

export function linesWith(chat: Chat, peer: PeerKey): readonly ChatLine[] {
  return chat.lines.get(peer) ?? []
}

export function unreadFrom(chat: Chat, peer: PeerKey): number {
  const readNo = chat.readNos.get(peer) ?? 0
  return linesWith(chat, peer).filter(({ kind, no }) => kind === 'received' && no > readNo).length
}

export function unreadInAll(chat: Chat): number {
  return chat.peers.reduce((sum, { peer }) => sum + unreadFrom(chat, peer), 0)
}

/** Returns a peer's name, or else part of its key. */
export function nameOf(chat: Chat, peer: PeerKey): string {
  const known = peer === chat.me.key ? chat.me : chat.peers.find((each) => each.peer === peer)
  return known?.name || `peer-${peer.slice(0, 8)}`
}

/** Returns the line that waits under this number. Numbers may repeat once the outbox was empty. */
export function waitingLine(chat: Chat, outboxNo: number): WrittenLine | undefined {
  return writtenLines(chat).find(({ fate }) => fate.name === 'waiting' && fate.outboxNo === outboxNo)
}

/** Returns the lines of unknown fate, which the outbox (`outboxNos`) lacks. */
export function orphanedLines(chat: Chat, outboxNos: ReadonlySet<number>): WrittenLine[] {
  const isOrphaned = ({ fate }: WrittenLine) =>
    fate.name === 'keeping' || (fate.name === 'waiting' && !outboxNos.has(fate.outboxNo))
  return writtenLines(chat).filter(isOrphaned)
}

function writtenLines(chat: Chat): WrittenLine[] {
  return [...chat.lines.values()].flat().filter((line) => line.kind === 'written')
}

const byNo = (a: ChatLine, b: ChatLine): number => a.no - b.no
const byName = (a: ChatPartner, b: ChatPartner): number => a.name.localeCompare(b.name) || (a.peer < b.peer ? -1 : 1)

/** The texts for error codes. */
const WORDS: Readonly<Record<string, string>> = {
  invite_malformed: 'This is not an invite, or a part of it is missing. Copy the whole link.',
  invite_refused: 'This invite is used up, expired or revoked. Ask for a new one.',
  name_taken: 'Another member has this name. Choose another one.',
  name_malformed: 'A name is 1 to 64 letters, digits and signs, without accents, emoji and / , * ( ).',
  wrong_broker: 'This server is not the broker of the invite. Nothing was sent to it.',
  connection_lost: 'The broker can’t be reached. Try again in a moment.',
  try_later: 'The broker is busy. Try again in a moment.',
  restarting: 'The broker is starting. Try again in a moment.',
  revoked: 'An admin revoked your membership.',
  session_conflict: 'Your key connected from another place.',
  body_too_large: 'too long',
  outbox_full: 'too many messages are waiting',
  unknown_recipient: 'the recipient is no longer a member',
  maybe_sent: 'the message may have been sent',
}

export function wordsFor(error: unknown): string {
  if (!(error instanceof SealpostError)) return 'This page failed. Reload it.'
  return WORDS[error.code] ?? error.message
}

/** Returns the text after "Not sent:". */
export function failureWords(code: string): string {
  return WORDS[code] ?? code.replaceAll('_', ' ')
}
