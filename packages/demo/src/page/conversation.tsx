/** Shows a conversation: partner, lines and composer. Messages are always text. */
import { fingerprint } from '@sealpost/identity'
import type { PeerKey } from '@sealpost/sdk'
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks'
import { type Chat, type ChatLine, type Fate, failureWords, type LineFile, linesWith, nameOf } from './chat.ts'
import { BackIcon, ClockIcon, Face, SendIcon, StoredIcon } from './icons.tsx'
import type { Mailbox } from './mailbox.ts'

interface Parts {
  readonly chat: Chat
  readonly mailbox: Mailbox
  readonly peer: PeerKey
}

export function Conversation({ chat, mailbox, peer }: Parts) {
  const heading = useRef<HTMLHeadingElement>(null)
  useEffect(() => heading.current!.focus(), []) // on a large screen, the composer has the focus
  const isMember = chat.peers.some((each) => each.peer === peer && each.isMember)
  return (
    <section class="conversation" aria-labelledby="with">
      <header class="bar">
        <button type="button" class="plain back" aria-label="Back to the members" onClick={() => history.back()}>
          <BackIcon />
        </button>
        <Face name={nameOf(chat, peer)} />
        <h1 id="with" ref={heading} tabIndex={-1}>
          <bdi>{nameOf(chat, peer)}</bdi>
        </h1>
        <Keys peer={peer} />
      </header>
      <Lines chat={chat} mailbox={mailbox} peer={peer} />
      {isMember ? (
        <Composer peer={peer} name={nameOf(chat, peer)} mailbox={mailbox} />
      ) : (
        <p class="hint gone">This member has left the mesh.</p>
      )}
    </section>
  )
}

/** Shows the fingerprint, which is derived from the key; names come from the broker. */
function Keys({ peer }: { peer: PeerKey }) {
  return (
    <>
      <button type="button" class="verify" popovertarget="keys">
        Verify {fingerprint(peer).slice(0, 9)}
      </button>
      <div id="keys" class="popover" popover="auto">
        <p>Compare this fingerprint with theirs over another channel:</p>
        <p class="fingerprint">{fingerprint(peer)}</p>
      </div>
    </>
  )
}

function Lines({ chat, mailbox, peer }: Parts) {
  const lines = linesWith(chat, peer)
  const box = useRef<HTMLDivElement>(null)
  const isAtEnd = useRef(true)
  useLayoutEffect(() => {
    if (isAtEnd.current || lines.at(-1)?.kind === 'written') box.current!.scrollTop = box.current!.scrollHeight
  }, [lines.length])
  useEffect(() => keepAtEnd(box.current!, isAtEnd), [])
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard
    <div class="lines" ref={box} role="log" aria-label="Messages" tabIndex={0}>
      <ol>
        {lines.map((line, at) => (
          <LineView
            key={line.no}
            line={line}
            mailbox={mailbox}
            from={nameOf(chat, peer)}
            isNewDay={dayOf(line) !== dayOf(lines[at - 1])}
          />
        ))}
      </ol>
    </div>
  )
}

/** Keeps the last line in view when a phone's keyboard opens. */
function keepAtEnd(box: HTMLElement, isAtEnd: { current: boolean }): () => void {
  const look = () => {
    isAtEnd.current = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_PX
  }
  const follow = () => {
    if (isAtEnd.current) box.scrollTop = box.scrollHeight
  }
  const resizes = new ResizeObserver(follow)
  resizes.observe(box)
  box.addEventListener('scroll', look, { passive: true })
  return () => resizes.disconnect()
}

const NEAR_PX = 80

interface LineParts {
  readonly line: ChatLine
  readonly mailbox: Mailbox
  readonly from: string
  readonly isNewDay: boolean
}

function LineView({ line, mailbox, from, isNewDay }: LineParts) {
  const time = new Date(line.atMs)
  return (
    <>
      {isNewDay && <li class="day">{dayOf(line)}</li>}
      <li class="line" data-kind={line.kind}>
        <span class="unseen">{line.kind === 'written' ? 'You' : from}: </span>
        <p dir="auto">{line.text}</p>
        {line.kind === 'received' && line.file && <FileView file={line.file} save={() => void mailbox.save(line)} />}
        <span class="about">
          <time dateTime={time.toISOString()}>
            {time.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' })}
          </time>
          {line.kind === 'written' && <FateView fate={line.fate} />}
        </span>
      </li>
    </>
  )
}

function FileView({ file, save }: { file: LineFile; save: () => void }) {
  const name = <bdi>{file.name}</bdi>
  switch (file.state) {
    case 'unsaved':
      return (
        <button type="button" class="file" onClick={save}>
          Save {name} ({sizeOf(file.bytes)})
        </button>
      )
    case 'saving':
      return (
        <span class="file" role="status">
          Saving {name}…
        </span>
      )
    case 'saved':
      return <span class="file">Saved: {name}</span>
    case 'lost':
      return <span class="file">{name} is no longer available.</span>
    case 'unreadable':
      return <span class="file">A later version of Sealpost sent this file. This page can’t read it.</span>
  }
}

const sizeOf = (bytes: number): string => (bytes < 100_000 ? `${bytes} bytes` : `${(bytes / 1e6).toFixed(1)} MB`)

function FateView({ fate }: { fate: Fate }) {
  switch (fate.name) {
    case 'keeping':
    case 'waiting':
      return (
        <span class="fate" data-fate={fate.name} title="Stored in this browser, not sent yet">
          <ClockIcon />
          <span class="unseen">waiting</span>
        </span>
      )
    case 'stored':
      return (
        <span class="fate" data-fate="stored" title="Stored by the broker">
          <StoredIcon />
          <span class="unseen">stored</span>
        </span>
      )
    case 'unsure':
      return (
        <span class="fate" data-fate="unsure">
          may have been sent
        </span>
      )
    case 'failed':
      return (
        <span class="fate" data-fate="failed">
          not sent: {failureWords(fate.code)}
        </span>
      )
  }
}

const dayOf = (line: ChatLine | undefined): string | undefined =>
  line && new Date(line.atMs).toLocaleDateString([], { weekday: 'long', day: 'numeric', month: 'long' })

const drafts = new Map<PeerKey, string>()

export function Composer({ peer, name, mailbox }: { peer: PeerKey; name: string; mailbox: Mailbox }) {
  const field = useRef<HTMLTextAreaElement>(null)
  useEffect(() => {
    field.current!.value = drafts.get(peer) ?? ''
    if (matchMedia(ROOMY).matches) field.current!.focus()
  }, [])
  const send = (event: Event) => {
    event.preventDefault()
    const text = field.current!.value.trim()
    if (!text) return
    field.current!.value = ''
    drafts.delete(peer)
    void mailbox.say(peer, text)
    field.current!.focus()
  }
  const sendOnEnter = (event: KeyboardEvent) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) send(event)
  }
  return (
    <form class="composer" onSubmit={send}>
      <textarea
        ref={field}
        rows={1}
        aria-label={`Message to ${name}`}
        placeholder="Write a message"
        enterkeyhint="send"
        dir="auto"
        onInput={() => drafts.set(peer, field.current!.value)}
        onKeyDown={sendOnEnter}
      />
      <button type="submit" aria-label="Send">
        <SendIcon />
      </button>
    </form>
  )
}

/** Matches screens on which focusing the composer opens no keyboard over the messages. */
const ROOMY = '(min-width: 48rem)'
