/** The chat: on a wide screen the list beside the conversation, on a narrow one either. */
import { useEffect, useRef } from 'preact/hooks'
import { type Chat, type LinkStatus, unreadInAll } from './chat.ts'
import { Conversation } from './conversation.tsx'
import { CloseIcon, Logo } from './icons.tsx'
import type { Mailbox } from './mailbox.ts'
import { PeerList } from './peer-list.tsx'

export interface ChatParts {
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

/** Back leads from a conversation to the list, as on a phone one expects, and the focus to where it came from. */
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
      return 'The broker is away. What you write is kept here and leaves when it is back.'
    case 'over':
      return `Not connected any more: ${link.reason}`
  }
}

function NothingOpen() {
  return (
    <div class="nothing">
      <Logo />
      <p>Choose someone to write to. Only the two of you can read it.</p>
    </div>
  )
}
