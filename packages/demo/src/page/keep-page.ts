/** Registers the worker that keeps the page, so that it opens while the broker is away (`offline.ts`). */

const WORKER = `${location.pathname}offline.js`

interface TrustedTypes {
  createPolicy(name: string, rules: { createScriptURL: () => string }): { createScriptURL(url: string): string }
}

/** Without it everything works, but opening the page needs the broker. */
export async function keepPage(): Promise<void> {
  const { trustedTypes } = globalThis as { trustedTypes?: TrustedTypes }
  const policy = trustedTypes?.createPolicy('sealpost', { createScriptURL: () => WORKER })
  await navigator.serviceWorker?.register(policy?.createScriptURL(WORKER) ?? WORKER).catch(() => undefined)
}
