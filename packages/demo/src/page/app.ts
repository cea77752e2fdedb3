/** Manages the page's screens and their actions. */
import { generateIdentity, type Invite, readAnyInvite, ready } from '@sealpost/identity'
import type { Identity, Membership } from '@sealpost/sdk'
import { join } from '@sealpost/sdk/join'
import { Archive, type StoredProfile } from './archive.ts'
import { type Chat, wordsFor } from './chat.ts'
import { Mailbox } from './mailbox.ts'

export type Screen =
  | { readonly name: 'opening' }
  /** Another tab has the keys and the outbox; this one continues once it is closed. */
  | { readonly name: 'elsewhere' }
  | { readonly name: 'broken'; readonly reason: string }
  | { readonly name: 'uninvited'; readonly problem: string | null; readonly use: (link: string) => void }
  | { readonly name: 'other broker'; readonly link: string }
  | {
      readonly name: 'invited'
      readonly broker: string
      readonly isJoining: boolean
      readonly problem: string | null
      readonly join: (name: string) => void
    }
  | { readonly name: 'chat'; readonly chat: Chat; readonly mailbox: Mailbox }

type Show = (screen: Screen) => void

const LOCK = 'sealpost demo'

export async function start(show: Show): Promise<void> {
  const link = takeInvite()
  addEventListener('hashchange', () => location.reload()) // reacts to a link pasted into the address bar
  show({ name: 'opening' })
  try {
    await soleTab(() => show({ name: 'elsewhere' }))
    await ready()
    const archive = await Archive.open()
    await new App(archive, show).begin(link)
  } catch (error) {
    show({ name: 'broken', reason: wordsFor(error) })
  }
}

class App {
  readonly #archive: Archive
  readonly #show: Show

  constructor(archive: Archive, show: Show) {
    this.#archive = archive
    this.#show = show
  }

  async begin(link: string | null): Promise<void> {
    const profile = await this.#archive.profile()
    if (profile?.stage.name === 'member') return this.#chat(profile.identity, profile.stage.membership)
    const invite = link ?? profile?.stage.invite
    if (invite === undefined) return this.#askForLink(null)
    return this.#useInvite(invite)
  }

  #askForLink(problem: string | null): void {
    const use = (link: string) => this.#guard(this.#useInvite(link.slice(link.indexOf('#') + 1).trim()))
    this.#show({ name: 'uninvited', problem, use })
  }

  async #useInvite(text: string): Promise<void> {
    const invite = readOrNull(text)
    if (!invite) return this.#askForLink('This is not an invite, or a part of it is missing. Copy the whole link.')
    const link = otherHome(invite, text)
    if (link) return this.#show({ name: 'other broker', link })
    const former = await this.#archive.profile()
    const identity = former?.identity ?? generateIdentity()
    const profile: StoredProfile = { identity, stage: { name: 'invited', invite: text } }
    await this.#archive.keepProfile(profile)
    this.#invited(profile, text, { isJoining: false, problem: null })
  }

  #invited(profile: StoredProfile, invite: string, state: { isJoining: boolean; problem: string | null }): void {
    const joinAs = (name: string) => this.#guard(this.#join(profile, invite, name))
    this.#show({ name: 'invited', broker: location.host, ...state, join: joinAs })
  }

  async #join(profile: StoredProfile, invite: string, name: string): Promise<void> {
    this.#invited(profile, invite, { isJoining: true, problem: null })
    const membership = await join({ invite, identity: profile.identity, name }).catch((error: unknown) => {
      this.#invited(profile, invite, { isJoining: false, problem: wordsFor(error) })
    })
    if (!membership) return
    await this.#archive.keepProfile({ identity: profile.identity, stage: { name: 'member', membership } })
    void navigator.storage.persist() // otherwise, a browser may delete the keys when disk space is low
    await this.#chat(profile.identity, membership)
  }

  async #chat(identity: Identity, membership: Membership): Promise<void> {
    const show = (chat: Chat, mailbox: Mailbox) => this.#show({ name: 'chat', chat, mailbox })
    await Mailbox.open({ archive: this.#archive, identity, membership, show })
  }

  /** Shows the failure of a click's action. */
  #guard(work: Promise<void>): void {
    work.catch((error) => this.#show({ name: 'broken', reason: wordsFor(error) }))
  }
}

/** Resolves once no other tab has the keys; this one then holds the lock. */
function soleTab(showElsewhere: () => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const hold = () => new Promise<never>(() => resolve())
    const wait = async (granted: Lock | null) => {
      if (granted) return hold()
      showElsewhere()
      navigator.locks.request(LOCK, hold).catch(reject)
    }
    navigator.locks.request(LOCK, { ifAvailable: true }, wait).catch(reject)
  })
}

function readOrNull(text: string): Invite | null {
  try {
    return readAnyInvite(text).invite
  } catch {
    return null // the screen shows the error
  }
}

/**
 * Removes the invite from the address, so that neither the history nor shared links contain it. As the fragment, it
 * reaches no server.
 */
export function takeInvite(): string | null {
  const text = decodeURIComponent(location.hash.slice(1)).trim()
  if (location.hash) history.replaceState(null, '', location.pathname)
  return text || null
}

/** Returns the page for the invite, if that is at another broker or host name. */
export function otherHome(invite: { readonly url: string }, text: string): string | null {
  const { protocol, host } = new URL(invite.url)
  const origin = `${protocol === 'wss:' ? 'https:' : 'http:'}//${host}`
  return origin === location.origin ? null : `${origin}${location.pathname}#${text}`
}
