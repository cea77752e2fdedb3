/** Who is in the mesh, with what each wrote last and how much of it is unread; below, oneself. */
import { fingerprint } from '@sealpost/identity'
import { type Chat, type ChatPartner, linesWith, nameOf, unreadFrom } from './chat.ts'
import type { ChatParts } from './chat-view.tsx'
import { ChevronIcon, Logo } from './icons.tsx'
import type { Mailbox } from './mailbox.ts'

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
        {chat.peers.length === 0 && <p class="hint">Nobody else is here yet.</p>}
        <ul>
          {chat.peers.map((entry) => (
            <li key={entry.peer}>
              <PeerRow entry={entry} chat={chat} mailbox={mailbox} />
            </li>
          ))}
        </ul>
      </nav>
      <Oneself chat={chat} mailbox={mailbox} />
    </aside>
  )
}

function PeerRow({ entry: { peer, isMember }, chat, mailbox }: ChatParts & { entry: ChatPartner }) {
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
      <Face name={nameOf(chat, peer)} />
      <span class="peer-words">
        <bdi class="peer-name">{nameOf(chat, peer)}</bdi>
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

export function Face({ name }: { name: string }) {
  return (
    <span class="face" aria-hidden="true">
      {[...name][0]?.toUpperCase()}
    </span>
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
        Forget everything here
      </button>
    </details>
  )
}

const FORGET_WORDS =
  'Destroy your keys and every message in this browser? Nobody can be you again; to come back you need another invite.'
