/** The place to write. Enter sends, Shift and Enter begin a new line. A draft outlives a look into another conversation. */
import type { PeerKey } from '@sealpost/sdk'
import { useEffect, useRef } from 'preact/hooks'
import { SendIcon } from './icons.tsx'
import type { Mailbox } from './mailbox.ts'

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

/** Elsewhere the focus would bring up the keyboard over what is to be read. */
const ROOMY = '(min-width: 48rem)'
