/** Renders the console: signs in with a token, and shows the address's view. */
import type { Me } from '@sealpost/operator'
import { render } from 'preact'
import { useEffect, useMemo, useState } from 'preact/hooks'
import { Api, age, type Fetched, Problem, useAsked, useLive } from './parts.tsx'
import { MeshesView, MeshView } from './views/mesh.tsx'
import { OverviewView, ShardsView } from './views/overview.tsx'
import { AuditView, DatabaseView, DeadLettersView } from './views/storage.tsx'

function App() {
  const [token, setToken] = useState(takeToken)
  const [wasExpelled, setExpelled] = useState(false)
  const leave = () => {
    forgetToken()
    setToken(null)
  }
  const enter = (fresh: string) => {
    keepToken(fresh)
    setExpelled(false)
    setToken(fresh)
  }
  useEffect(() => {
    // Handles a link with a token that is pasted into an open page.
    const pasted = () => {
      const fresh = takeToken()
      if (fresh) enter(fresh)
    }
    addEventListener('hashchange', pasted)
    return () => removeEventListener('hashchange', pasted)
  }, [])
  const api = useMemo(() => token && new Api(token), [token])
  if (!api) return <SignIn enter={enter} wasExpelled={wasExpelled} />
  api.onExpelled = () => {
    setExpelled(true)
    leave()
  }
  return <Signed key={token} api={api} leave={leave} />
}

function SignIn({ enter, wasExpelled }: { enter: (token: string) => void; wasExpelled: boolean }) {
  const [token, setToken] = useState('')
  return (
    <main class="sign-in card">
      <h1>Sealpost console</h1>
      {wasExpelled && <Problem>This token is unknown, expired or revoked.</Problem>}
      <p>
        <code>sealpost admin console</code> prints a link that signs you in. Or enter a token from{' '}
        <code>sealpost admin token create</code>:
      </p>
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault()
          enter(token.trim())
        }}
      >
        <label for="token">Admin token</label>
        <input
          id="token"
          type="password"
          autocomplete="off"
          required
          placeholder="spa_…"
          value={token}
          onInput={({ currentTarget }) => setToken(currentTarget.value)}
        />
        <button type="submit">Open</button>
      </form>
    </main>
  )
}

const VIEWS = [
  ['', 'Overview'],
  ['meshes', 'Meshes'],
  ['dead', 'Dead letters'],
  ['database', 'Database'],
  ['shards', 'Shards'],
  ['audit', 'Audit'],
] as const

interface SignedProps {
  readonly api: Api
  readonly leave: () => void
}

function Signed({ api, leave }: SignedProps) {
  const [me] = useAsked('me', () => api.get<Me>('/me'), 60_000)
  if (me.state !== 'ready') return <Waiting me={me} leave={leave} />
  return me.value.meshId === null ? (
    <Whole api={api} me={me.value} leave={leave} />
  ) : (
    <Frame page="meshes" me={me.value} leave={leave} views={[['meshes', 'Mesh']]}>
      <MeshView api={api} meshId={me.value.meshId} me={me.value} />
    </Frame>
  )
}

function Waiting({ me, leave }: { me: Fetched<Me>; leave: () => void }) {
  return (
    <main class="sign-in card">
      <h1>Sealpost console</h1>
      {me.state === 'failed' ? <Problem>{me.why}</Problem> : <p role="status">Opening…</p>}
      <button type="button" class="plain" onClick={leave}>
        Use another token
      </button>
    </main>
  )
}

/** Shows the view for a token of all meshes. */
function Whole({ api, me, leave }: SignedProps & { me: Me }) {
  const [page = '', rest] = useRoute()
  const live = useLive(api)
  return (
    <Frame page={page} me={me} leave={leave} views={VIEWS}>
      {live.away && (
        <Problem>
          {live.away} Trying again;{' '}
          {live.overview
            ? `the data is from ${age(Date.now() - live.overview.atMs)} ago.`
            : 'no data has been received yet.'}
        </Problem>
      )}
      {page === '' && <OverviewView live={live} />}
      {page === 'meshes' && (rest ? <MeshView api={api} meshId={rest} me={me} /> : <MeshesView api={api} />)}
      {page === 'dead' && <DeadLettersView api={api} me={me} />}
      {page === 'database' && <DatabaseView api={api} />}
      {page === 'shards' && <ShardsView api={api} />}
      {page === 'audit' && <AuditView api={api} />}
    </Frame>
  )
}

interface FrameProps {
  readonly page: string
  readonly me: Me
  readonly leave: () => void
  readonly views: readonly (readonly [string, string])[]
  readonly children: preact.ComponentChildren
}

function Frame({ page, me, leave, views, children }: FrameProps) {
  useEffect(() => {
    const name = views.find(([path]) => path === page)?.[1] ?? 'Overview'
    document.title = `${name} · Sealpost console`
    scrollTo(0, 0)
  }, [page, views])
  return (
    <div class="frame">
      <button type="button" class="skip" onClick={toContent}>
        Skip to content
      </button>
      <header>
        <span class="brand">Sealpost</span>
        <nav aria-label="Views">
          {views.map(([path, name]) => (
            <a key={path} href={`#/${path}`} aria-current={path === page ? 'page' : undefined}>
              {name}
            </a>
          ))}
        </nav>
        <div class="who">
          <span class="quiet" title={me.scope === 'operate' ? 'can view and change' : 'can view'}>
            {me.name}
          </span>
          <button type="button" class="plain" onClick={leave}>
            Sign out
          </button>
        </div>
      </header>
      <main id="content" tabIndex={-1}>
        {children}
      </main>
    </div>
  )
}

/** Moves the focus without a link, because the fragment is the route. */
function toContent(): void {
  document.querySelector<HTMLElement>('#content')?.focus()
}

function useRoute(): string[] {
  const read = () => location.hash.replace(/^#\/?/, '').split('/')
  const [route, setRoute] = useState(read)
  useEffect(() => {
    const changed = () => setRoute(read())
    addEventListener('hashchange', changed)
    return () => removeEventListener('hashchange', changed)
  }, [])
  return route
}

/**
 * The key of this tab's token in the session storage. It arrives in the fragment, which no server sees and the page
 * removes.
 */
const NAME = 'sealpost admin token'
const IN_FRAGMENT = /^#(spa_[0-9a-f]{16}_[A-Za-z0-9_-]{43})$/

function takeToken(): string | null {
  const fresh = IN_FRAGMENT.exec(location.hash)?.[1]
  if (!fresh) return sessionStorage.getItem(NAME)
  history.replaceState(null, '', '#/')
  keepToken(fresh)
  return fresh
}

const keepToken = (token: string): void => sessionStorage.setItem(NAME, token)
const forgetToken = (): void => sessionStorage.removeItem(NAME)

render(<App />, document.querySelector('#app')!)
