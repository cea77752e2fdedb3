/** Starts the page, with a service worker (`offline.ts`) that opens it while the broker is unavailable. */
import { type ComponentChildren, render } from 'preact'
import { type Screen, start } from './app.ts'
import { ChatView } from './chat-view.tsx'
import { Logo } from './icons.tsx'

const WORKER = `${location.pathname}offline.js`

const root = document.querySelector('#app')!
const show = (screen: Screen) => render(<ScreenView screen={screen} />, root)

interface TrustedTypes {
  createPolicy(name: string, rules: { createScriptURL: () => string }): { createScriptURL(url: string): string }
}

/** Registers the service worker, without which the page needs the broker. */
async function keepPage(): Promise<void> {
  const { trustedTypes } = globalThis as { trustedTypes?: TrustedTypes }
  const policy = trustedTypes?.createPolicy('sealpost', { createScriptURL: () => WORKER })
  await navigator.serviceWorker?.register(policy?.createScriptURL(WORKER) ?? WORKER).catch(() => undefined)
}

type Of<Name extends Screen['name']> = Extract<Screen, { name: Name }>

export function ScreenView({ screen }: { screen: Screen }) {
  switch (screen.name) {
    case 'opening':
      return <Card title="Opening…" />
    case 'elsewhere':
      return (
        <Card title="Open in another tab">
          <p>Only one tab at a time can use the keys. Close the other tab to continue here.</p>
        </Card>
      )
    case 'broken':
      return (
        <Card title="This page can’t continue">
          <p role="alert">{screen.reason}</p>
          <p>
            This page needs IndexedDB and Web Locks. Open it over https or from this machine, in a window that is not
            private.
          </p>
        </Card>
      )
    case 'other broker':
      return (
        <Card title="This invite is for another address">
          <p>Open it at:</p>
          <a class="button" href={screen.link} rel="noreferrer">
            {new URL(screen.link).host}
          </a>
        </Card>
      )
    case 'uninvited':
      return <Uninvited {...screen} />
    case 'invited':
      return <Invited {...screen} />
    case 'chat':
      return <ChatView {...screen} />
  }
}

function Uninvited({ problem, use }: Of<'uninvited'>) {
  return (
    <Card title="You need an invite">
      <p>Ask an admin of the mesh for an invite link, and open it or paste it here.</p>
      <OneField label="Invite link" action="Continue" problem={problem} send={use} autocomplete="off" />
    </Card>
  )
}

function Invited({ broker, isJoining, problem, join }: Of<'invited'>) {
  return (
    <Card title="You are invited">
      <p>
        You can join the mesh at <strong>{broker}</strong>. Your keys are generated in this browser and stay in it; the
        broker can’t read your messages.
      </p>
      <OneField
        label="Your name"
        hint="The name that others see: letters, digits and signs, without accents."
        action={isJoining ? 'Joining…' : 'Join'}
        problem={problem}
        isBusy={isJoining}
        send={join}
        autocomplete="nickname"
        maxLength={NAME_MAX}
      />
    </Card>
  )
}

const NAME_MAX = 64

interface OneFieldOptions {
  label: string
  hint?: string
  action: string
  problem: string | null
  isBusy?: boolean
  autocomplete: 'off' | 'nickname'
  maxLength?: number
  send: (text: string) => void
}

/** Shows a form with one field, whose error is read out. */
function OneField({ label, hint, action, problem, isBusy = false, autocomplete, maxLength, send }: OneFieldOptions) {
  const submit = (event: SubmitEvent) => {
    event.preventDefault()
    const text = String(new FormData(event.currentTarget as HTMLFormElement).get('answer')).trim()
    if (text) send(text)
  }
  return (
    <form class="stack" onSubmit={submit}>
      <label for="answer">{label}</label>
      <input
        id="answer"
        name="answer"
        required
        autofocus
        autocomplete={autocomplete}
        autocapitalize="off"
        spellcheck={false}
        maxLength={maxLength}
        aria-describedby="answer-words"
        aria-invalid={problem !== null}
        readOnly={isBusy}
      />
      <p id="answer-words" class={problem ? 'problem' : 'hint'} role="status">
        {problem ?? hint}
      </p>
      <button type="submit" disabled={isBusy}>
        {action}
      </button>
    </form>
  )
}

function Card({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <main class="card stack">
      <p class="brand">
        <Logo /> Sealpost
      </p>
      <h1>{title}</h1>
      {children}
    </main>
  )
}

void start(show)
void keepPage()
