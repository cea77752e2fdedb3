/** Starts the page, and registers the worker that keeps it, so that it opens while the broker is away (`offline.ts`). */
import { render } from 'preact'
import { type Screen, start } from './app.ts'
import { ScreenView } from './screens.tsx'

const WORKER = `${location.pathname}offline.js`

const root = document.querySelector('#app')!
const show = (screen: Screen) => render(<ScreenView screen={screen} />, root)

void start(show)
void keepPage()

interface TrustedTypes {
  createPolicy(name: string, rules: { createScriptURL: () => string }): { createScriptURL(url: string): string }
}

/** Without it everything works, but opening the page needs the broker. */
async function keepPage(): Promise<void> {
  const { trustedTypes } = globalThis as { trustedTypes?: TrustedTypes }
  const policy = trustedTypes?.createPolicy('sealpost', { createScriptURL: () => WORKER })
  await navigator.serviceWorker?.register(policy?.createScriptURL(WORKER) ?? WORKER).catch(() => undefined)
}
