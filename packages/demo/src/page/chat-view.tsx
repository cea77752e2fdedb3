/** Shows the chat: the list and the conversation, or one of them on a narrow screen. */

import { fingerprint } from '@sealpost/identity'
import { useEffect, useRef } from 'preact/hooks'
import {
  type Chat,
  type ChatPartner,
  type Contact,
  contactsOf,
  type LinkStatus,
  linesWith,
  nameOf,
  unreadFrom,
  unreadInAll,
} from './chat.ts'
import { Conversation } from './conversation.tsx'
import { ChevronIcon, CloseIcon, Face, Logo } from './icons.tsx'
import type { Mailbox } from './mailbox.ts'

interface ChatParts {
  readonly chat: Chat
  readonly mailbox: Mailbox
}

export function ChatView({ chat, mailbox }: ChatParts) {
  const unread = unreadInAll(chat)
  useEffect(() => {
    document.title = unread > 0 ? `(${unread}) Sealpost` : 'Sealpost'
  }, [unread])
  useBackButton(chat, mailbox)
  return (
    <div class="chat" data-pane={chat.open === null ? 'list' : 'conversation'}>
      <PeerList chat={chat} mailbox={mailbox} />
      <main class="pane">
        {chat.notice !== null && (
          <div class="notice">
            <p role="alert">{chat.notice}</p>
            <button type="button" class="plain" aria-label="Close this notice" onClick={() => mailbox.closeNotice()}>
              <CloseIcon />
            </button>
          </div>
        )}
        <ConnectionStatus link={chat.link} />
        {chat.open === null ? (
          <NothingOpen />
        ) : (
          <Conversation key={chat.open} chat={chat} mailbox={mailbox} peer={chat.open} />
        )}
      </main>
      <p role="status" class="unseen">
        {chat.heard}
      </p>
    </div>
  )
}

/** Makes the Back button lead to the list, and restores the focus. */
function useBackButton({ open }: Chat, mailbox: Mailbox): void {
  const former = useRef(open)
  useEffect(() => {
    const back = () => mailbox.select(null)
    addEventListener('popstate', back)
    return () => removeEventListener('popstate', back)
  }, [mailbox])
  useEffect(() => {
    if (open !== null && history.state !== IN_CONVERSATION) history.pushState(IN_CONVERSATION, '')
    if (open === null) document.querySelector<HTMLElement>(`[data-peer="${former.current}"]`)?.focus()
    former.current = open
  }, [open])
}

const IN_CONVERSATION = 'conversation'

function ConnectionStatus({ link }: { link: LinkStatus }) {
  return (
    <p class="link-state" role="status" data-link={link.name}>
      {linkWords(link)}
    </p>
  )
}

function linkWords(link: LinkStatus): string {
  switch (link.name) {
    case 'connecting':
    case 'online':
      return ''
    case 'away':
      return 'The broker is unreachable. Your messages are stored here and sent when it is back.'
    case 'over':
      return `Disconnected: ${link.reason}`
  }
}

function NothingOpen() {
  return (
    <div class="nothing">
      <Logo />
      <p>Choose someone to write to. Only the two of you can read your messages.</p>
    </div>
  )
}

export function PeerList({ chat, mailbox }: ChatParts) {
  return (
    <aside class="list">
      <header class="bar">
        <p class="brand">
          <Logo /> Sealpost
        </p>
        <span class="dot" data-link={chat.link.name} title={chat.link.name} />
      </header>
      <nav aria-label="Members">
        {chat.peers.length === 0 && <p class="hint">There are no other members yet.</p>}
        <ul>
          {contactsOf(chat).map((contact) => (
            <li key={contact.user.peer}>
              <PeerRow entry={contact.user} name={nameOf(chat, contact.user.peer)} chat={chat} mailbox={mailbox} />
              {contact.devices.length > 0 && <Devices contact={contact} chat={chat} mailbox={mailbox} />}
            </li>
          ))}
        </ul>
      </nav>
      <Oneself chat={chat} mailbox={mailbox} />
    </aside>
  )
}

/** The devices and sessions of a user. The list opens if one of them has a new message. */
function Devices({ contact: { devices }, chat, mailbox }: ChatParts & { contact: Contact }) {
  const isInUse = devices.some(({ peer }) => chat.open === peer || unreadFrom(chat, peer) > 0)
  return (
    <details class="devices" open={isInUse}>
      <summary>Devices and sessions ({devices.length})</summary>
      <ul>
        {devices.map((entry) => (
          <li key={entry.peer}>
            <PeerRow entry={entry} name={entry.name.split('/').at(-1)!} chat={chat} mailbox={mailbox} />
          </li>
        ))}
      </ul>
    </details>
  )
}

interface PeerRowParts extends ChatParts {
  readonly entry: ChatPartner
  readonly name: string
}

function PeerRow({ entry: { peer, isMember }, name, chat, mailbox }: PeerRowParts) {
  const unread = unreadFrom(chat, peer)
  const last = linesWith(chat, peer).at(-1)
  return (
    <button
      type="button"
      class="peer"
      data-peer={peer}
      aria-current={chat.open === peer ? 'true' : undefined}
      onClick={() => mailbox.select(peer)}
    >
      <Face name={name} />
      <span class="peer-words">
        <bdi class="peer-name">{name}</bdi>
        <bdi class="peer-last">
          {last ? `${last.kind === 'written' ? 'You: ' : ''}${last.text}` : isMember ? '' : 'has left'}
        </bdi>
      </span>
      {unread > 0 && (
        <span class="badge">
          {unread}
          <span class="unseen"> unread</span>
        </span>
      )}
    </button>
  )
}

function Oneself({ chat, mailbox }: { chat: Chat; mailbox: Mailbox }) {
  const forget = () => {
    if (confirm(FORGET_WORDS)) void mailbox.forget()
  }
  return (
    <details class="self">
      <summary>
        <Face name={chat.me.name} />
        <span class="peer-words">
          <bdi class="peer-name">{chat.me.name}</bdi>
          <span class="peer-last">you</span>
        </span>
        <ChevronIcon />
      </summary>
      <p class="hint">Your fingerprint, for others to compare:</p>
      <p class="fingerprint">{fingerprint(chat.me.key)}</p>
      <button type="button" class="danger" onClick={forget}>
        Delete all data in this browser
      </button>
    </details>
  )
}

const FORGET_WORDS =
  'Delete your keys and all messages in this browser? You can’t restore this identity, and you need another invite to join again.'
