/**
 * Chooses the label of a session, locks its folder in the profile, and enrols its keys at the first start
 * (docs/adr/0013-sessions.md, rules 2 to 5).
 */
import { existsSync } from 'node:fs'
import { chmod, mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { isDeviceLabel, ready } from '@sealpost/identity'
import { asciiName, isChosenName, type Millis, NAME_RULE, tidyName, withResolvers } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import { isLockHeld, lockStore, lockStoreInTurn, type StoreLock, tryLockStore } from '../stores/file/lock.ts'
import { dialHost, type HostFrame, type HostLink, sessionsFolderOf, socketPathOf } from './mailbox-link.ts'
import { type CertifiedKeys, type CertifyOptions, certifiedKeys, existingKeys } from './session-keys.ts'

export interface SlotOptions extends CertifyOptions {
  readonly folder: string
  readonly as?: string
  readonly baseLabel?: string
}

/** The lock of a session that has connected to a host, and may thus hold messages of the member. */
const LINKED = 'linked'
/** The lock of a session's folder. */
const SESSION = 'session'
/**
 * A file in the folder of an unnamed session whose mail the host receives. Other sessions may hold some of it, so only
 * a host may open the folder.
 */
export const LENT = 'lent'

/** The folder of a session, which this process has locked. */
export interface SessionSlot {
  readonly label: string
  readonly isNamed: boolean
  readonly folder: string
  /** The session's name on the link to the host: the name of its folder. */
  readonly name: string
  readonly locks: readonly StoreLock[]
}

export interface KeyedSlot extends SessionSlot, Pick<CertifiedKeys, 'keys'> {}

export interface CertifiedSlot extends KeyedSlot, CertifiedKeys {}

/** What a session's folder says about it. */
export interface SlotFile {
  readonly label: string
  readonly isNamed: boolean
  /** Another machine has the label. */
  readonly isTaken?: boolean
}

interface ListedSlot extends SlotFile {
  /** The name of the folder. */
  readonly name: string
}

const LABEL_MAX = 32
const NUMBER_CHARS = 4
const BASE_MAX = LABEL_MAX - NUMBER_CHARS

/**
 * Locks the folder of the named session, or of the first free slot, and enrols its keys unless they are enrolled.
 * @throws SealpostError `session_in_use`, `name_taken`, `label_malformed`, and the errors of `certifiedKeys`
 */
export async function openSlot(options: SlotOptions): Promise<CertifiedSlot> {
  await ready()
  const { as, baseLabel = defaultBase() } = options
  const label = validLabel(as ?? baseLabel, as === undefined ? BASE_MAX : LABEL_MAX)
  await mkdir(sessionsFolderOf(options.folder), { recursive: true, mode: 0o700 })
  await chmod(sessionsFolderOf(options.folder), 0o700)
  for (;;) {
    const slot = await inTurn(options.folder, () =>
      as === undefined ? freeSlot(options.folder, label) : namedSlot(options.folder, label),
    )
    try {
      const certified = await certifiedKeys(slot, options)
      await rm(join(slot.folder, LENT), { force: true })
      // This lock shows the next host that the session may hold messages.
      return { ...slot, ...certified, locks: [...slot.locks, await lockStore(join(slot.folder, LINKED))] }
    } catch (error) {
      const isTaken = error instanceof SealpostError && error.code === 'name_taken'
      if (isTaken) await writeSlotFile(slot.folder, { label: slot.label, isNamed: slot.isNamed, isTaken })
      await releaseSlot(slot)
      if (!isTaken || as !== undefined) throw isTaken ? labelTaken(label, error) : error
    }
  }
}

export async function releaseSlot({ locks }: Pick<SessionSlot, 'locks'>): Promise<void> {
  for (const lock of locks.toReversed()) await lock.release()
}

/** Returns the folder name of a label. Names of members differ in more than their case. */
export function folderNameOf(label: string): string {
  return encodeURIComponent(label.toLowerCase()).replaceAll('.', '%2E')
}

/** Returns the folder of a session in the folder of its profile. */
export const slotFolderOf = (profile: string, name: string): string => join(sessionsFolderOf(profile), name)

function defaultBase(): string {
  const host = hostname().split('.', 1)[0]!
  const base = tidyName(host.replace(/[^a-z0-9-]/gi, '-').replace(/^-+/, '')).slice(0, BASE_MAX)
  return isChosenName(base) ? base : 'session'
}

function validLabel(text: string, lengthMax: number): string {
  const label = tidyName(text)
  const form = asciiName(label)
  if (form.length <= lengthMax && isChosenName(label) && isDeviceLabel(form)) return label
  throw new SealpostError(
    'label_malformed',
    `A label of a session can have at most ${lengthMax} characters (fewer outside ASCII) and must follow the rule for names: ${NAME_RULE}.`,
  )
}

/** Runs one process of the profile at a time, because two that lock a slot at once may both give way. */
async function inTurn<T>(folder: string, step: () => Promise<T>): Promise<T> {
  const lock = await lockStoreInTurn(join(sessionsFolderOf(folder), 'slots'))
  try {
    return await step()
  } finally {
    await lock.release()
  }
}

async function namedSlot(folder: string, label: string): Promise<SessionSlot> {
  const slot = (await lockedSlot(folder, { label, isNamed: true })) ?? (await formerSlot(folder, label))
  if (!slot) throw inUse(label)
  return slot
}

/** Gives a name to an unnamed session whose process is gone. */
async function formerSlot(folder: string, label: string): Promise<SessionSlot | null> {
  const name = folderNameOf(label)
  const isLent = existsSync(join(slotFolderOf(folder, name), LENT))
  return isLent && (await vacatedByHost(folder, [name])) ? lockedSlot(folder, { label, isNamed: true }) : null
}

/** Returns the first slot that no process uses: one that has keys, or else a new one. */
async function freeSlot(folder: string, base: string): Promise<SessionSlot> {
  const known = await slotsOf(folder)
  const own = known.filter(({ label, isNamed, isTaken }) => !isNamed && !isTaken && numberOf(label, base) > 0)
  own.sort((a, b) => numberOf(a.label, base) - numberOf(b.label, base))
  return (await freeOf(folder, own)) ?? newSlot(folder, base, known)
}

async function freeOf(folder: string, slots: readonly ListedSlot[]): Promise<SessionSlot | null> {
  const isAlone = (await linkedSessions(folder)).length === 0
  const lent = isAlone ? [] : slots.filter(({ name }) => existsSync(join(slotFolderOf(folder, name), LENT)))
  for (const { label } of slots.filter((slot) => !lent.includes(slot))) {
    const slot = await lockedSlot(folder, { label, isNamed: false })
    if (slot) return slot
  }
  if (lent.length === 0) return null
  const names = lent.map((slot) => slot.name)
  const name = await vacatedByHost(folder, names)
  const vacated = lent.find((slot) => slot.name === name)
  return vacated ? lockedSlot(folder, { label: vacated.label, isNamed: false }) : null
}

async function newSlot(folder: string, base: string, known: readonly SlotFile[]): Promise<SessionSlot> {
  const used = new Set(known.map(({ label }) => label.toLowerCase()))
  for (let no = 1; ; no++) {
    const label = `${base}-${no}`
    const slot = used.has(label.toLowerCase()) ? null : await lockedSlot(folder, { label, isNamed: false })
    if (slot) return slot
  }
}

const ASK_TIMES = 20
const ASK_EVERY_MS: Millis = 50
const REPLY_WITHIN_MS: Millis = 3_000

/** Asks the host for one of the folders whose mail it receives. Waits for a while if there is no host. */
async function vacatedByHost(folder: string, names: readonly string[]): Promise<string | null> {
  for (let turn = 0; turn < ASK_TIMES; turn++) {
    const reply = withResolvers<string | null>()
    const received = (frame: HostFrame) => {
      if (frame.type === 'vacated') reply.resolve(frame.name)
    }
    const link = await dialHost(socketPathOf(folder), { received, closed: () => reply.resolve(null) })
    if (link) return answerOf(link, { names, reply: reply.promise })
    await delay(ASK_EVERY_MS)
  }
  return null
}

interface Vacating {
  readonly names: readonly string[]
  readonly reply: Promise<string | null>
}

async function answerOf(link: HostLink, { names, reply }: Vacating): Promise<string | null> {
  const timer = setTimeout(() => link.destroy(), REPLY_WITHIN_MS) // the host may be suspended
  link.send({ type: 'vacate', names })
  const name = await reply
  clearTimeout(timer)
  link.end()
  return name
}

/** Returns the folders of unnamed sessions that no process uses. */
export async function idleSlots(folder: string): Promise<readonly string[]> {
  const slots = (await slotsOf(folder)).filter(({ isNamed, isTaken }) => !isNamed && !isTaken)
  const names = slots.map(({ name }) => name)
  const used = await Promise.all(names.map((name) => isSlotLocked(folder, name)))
  return names.filter((_, i) => !used[i])
}

/** Locks an idle slot for the host. Returns null if it is no longer idle, or has no enrolled keys. */
export function borrowSlot(
  options: Pick<SlotOptions, 'folder' | 'passphrase'>,
  name: string,
): Promise<KeyedSlot | null> {
  const folder = slotFolderOf(options.folder, name)
  return inTurn(options.folder, async () => {
    const file = await readSlotFile(folder)
    const slot = file && !file.isNamed ? await lockedSlot(options.folder, file) : null
    const keys = slot && (await existingKeys(slot, options).catch(() => null))
    if (slot && keys?.enrolment) {
      await writeFile(join(folder, LENT), '')
      return { ...slot, keys }
    }
    if (slot) await releaseSlot(slot)
    return null
  })
}

/** Returns a slot that no session holds messages of. */
export async function returnSlot(slot: SessionSlot): Promise<void> {
  await rm(join(slot.folder, LENT), { force: true })
  await releaseSlot(slot)
}

/** Returns the folders of the sessions that may hold messages from a host. */
export async function linkedSessions(folder: string): Promise<string[]> {
  const names = await readdir(sessionsFolderOf(folder))
  const held = await Promise.all(names.map((name) => isLinked(folder, name)))
  return names.filter((_, i) => held[i])
}

export const isLinked = (folder: string, name: string): Promise<boolean> =>
  isLockHeld(join(slotFolderOf(folder, name), LINKED))

/** Returns whether a process has locked the folder: that of the session, or the host. */
export const isSlotLocked = (folder: string, name: string): Promise<boolean> =>
  isLockHeld(join(slotFolderOf(folder, name), SESSION))

/** Returns the number in the label of a slot; 0 for another label. */
function numberOf(label: string, base: string): number {
  const isOwn = label.toLowerCase().startsWith(`${base.toLowerCase()}-`)
  const digits = isOwn ? label.slice(base.length + 1) : ''
  return /^[1-9]\d*$/.test(digits) ? Number(digits) : 0
}

export async function slotsOf(folder: string): Promise<ListedSlot[]> {
  const parent = sessionsFolderOf(folder)
  const names = await readdir(parent)
  const files = await Promise.all(names.map((name) => readSlotFile(join(parent, name))))
  return files.flatMap((file, i) => (file ? [{ ...file, name: names[i]! }] : []))
}

/** Locks the folder of a session. Returns null if another process has it. */
export async function lockedSlot(profile: string, file: SlotFile): Promise<SessionSlot | null> {
  const name = folderNameOf(file.label)
  const folder = slotFolderOf(profile, name)
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const lock = await tryLockStore(join(folder, SESSION))
  if (!lock) return null
  const known = await readSlotFile(folder)
  if (known?.isNamed !== file.isNamed || known.isTaken) await writeSlotFile(folder, file)
  return { ...file, folder, name, locks: [lock] }
}

const slotFileOf = (folder: string): string => join(folder, 'session.json')

async function readSlotFile(folder: string): Promise<SlotFile | null> {
  try {
    const file: unknown = JSON.parse(await readFile(slotFileOf(folder), 'utf8'))
    return isSlotFile(file) ? file : null
  } catch {
    return null // a crash has interrupted its creation, or this is no folder of a session
  }
}

function isSlotFile(value: unknown): value is SlotFile {
  const { label, isNamed } = (value ?? {}) as Partial<SlotFile>
  return typeof label === 'string' && typeof isNamed === 'boolean'
}

async function writeSlotFile(folder: string, { label, isNamed, isTaken }: SlotFile): Promise<void> {
  const path = slotFileOf(folder)
  await writeFile(`${path}.new`, `${JSON.stringify({ label, isNamed, isTaken })}\n`, { mode: 0o600 })
  await rename(`${path}.new`, path)
}

function inUse(label: string): SealpostError {
  return new SealpostError('session_in_use', `Another process of this profile uses the session ${label}.`)
}

function labelTaken(label: string, cause: unknown): SealpostError {
  return new SealpostError(
    'name_taken',
    `The member already has a device or a session named ${label}, on another machine or in another profile. Choose another name, or end that session.`,
    { cause },
  )
}
