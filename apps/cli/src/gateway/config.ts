/** Stores the gateway's callers and webhooks in the profile, and defines the commands that change them. */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import { join } from 'node:path'
import { OperatingError } from '@sealpost/std'
import { Command } from 'commander'
import { resolveRecipient } from '../members/member-list.ts'
import { escapeName } from '../output.ts'
import { isRecord, type Profile, readJsonFile, updateJsonFile } from '../profile/profile.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'

/** A program that calls the gateway. */
export interface GatewayCaller {
  readonly kind: 'token'
  readonly name: string
  /** The SHA-256 hash of the token, in hex. */
  readonly hash: string
  /** The peers that the caller may write to; null for all. */
  readonly to: readonly string[] | null
  readonly receives: boolean
}

/** A webhook that others call. Its body becomes a message. */
export interface IncomingHook {
  readonly kind: 'hook'
  readonly name: string
  readonly secret: string
  readonly to: string
}

/** A webhook that the gateway calls for each message. */
export interface Forward {
  readonly kind: 'forward'
  readonly name: string
  readonly secret: string
  readonly url: string
  /** The senders whose messages are forwarded; null for all. */
  readonly from: readonly string[] | null
}

export type GatewayEntry = GatewayCaller | IncomingHook | Forward

interface GatewayFile {
  readonly version: 1
  readonly entries: readonly GatewayEntry[]
}

const EMPTY: GatewayFile = { version: 1, entries: [] }

const fileOf = ({ folder }: Profile): string => join(folder, 'gateway.json')

function isGatewayFile(value: unknown): value is GatewayFile {
  return isRecord(value) && value.version === 1 && Array.isArray(value.entries) && value.entries.every(isRecord)
}

export async function readEntries(profile: Profile): Promise<readonly GatewayEntry[]> {
  return (await readJsonFile(fileOf(profile), isGatewayFile))?.entries ?? []
}

const hashOf = (token: string): string => createHash('sha256').update(token).digest('hex')

/** Returns the caller with this token, or undefined. Takes the same time for every wrong token. */
export function callerOf(entries: readonly GatewayEntry[], token: string): GatewayCaller | undefined {
  const hash = Buffer.from(hashOf(token))
  return entries.filter((entry) => entry.kind === 'token').find((caller) => isSame(Buffer.from(caller.hash), hash))
}

const isSame = (a: Buffer, b: Buffer): boolean => a.length === b.length && timingSafeEqual(a, b)

const ENTRIES_MAX = 256

/** @throws OperatingError `name_unknown`, …, if a peer of the entry is unknown; `gateway_name_taken` */
async function add(shell: Shell, entry: GatewayEntry): Promise<void> {
  const { profile } = shell
  await profile.readMembership()
  const words = entry.kind === 'forward' ? entry.from : entry.to
  for (const word of [words ?? []].flat()) await resolveRecipient(shell, word)
  await updateJsonFile<GatewayFile>(fileOf(profile), isGatewayFile, ({ entries } = EMPTY): GatewayFile => {
    if (entries.some(({ name }) => name === entry.name))
      throw new OperatingError(
        'gateway_name_taken',
        `The gateway already has an entry named ${escapeName(entry.name)}.`,
      )
    if (entries.length >= ENTRIES_MAX)
      throw new OperatingError('too_many_entries', `A gateway can have at most ${ENTRIES_MAX} callers and webhooks.`)
    return { version: 1, entries: [...entries, entry] }
  })
}

const NAME = /^[a-z0-9][a-z0-9._-]{0,63}$/i

function checkedName(name: string): string {
  if (NAME.test(name)) return name
  throw new OperatingError('usage', 'A name contains only letters, digits, dots, dashes and underscores.')
}

/** Returns a secret in the format of Standard Webhooks. */
const newSecret = (): string => `whsec_${randomBytes(24).toString('base64')}`

export function tokenCommand(run: RunAction): Command {
  return new Command('token')
    .description('Create a token for a program that calls the gateway. The token is printed once.')
    .argument('<NAME>', 'a name for the program')
    .option('--to <PEER...>', 'the peers that the program may write to; default: all')
    .option('--receive', 'the program may receive messages')
    .addHelpText('after', examples('sealpost gateway token builds --to alice', 'sealpost gateway token desk --receive'))
    .action(
      run(async (shell, { to, receive }: { to?: readonly string[]; receive?: boolean }, name: string) => {
        const token = `sealpostgw_${randomBytes(24).toString('base64url')}`
        const receives = receive ?? false
        await add(shell, { kind: 'token', name: checkedName(name), hash: hashOf(token), to: to ?? null, receives })
        await shell.output.result({ name, token, to: to ?? null, receives }, () => token)
      }),
    )
}

export function hookCommand(run: RunAction): Command {
  return new Command('hook')
    .description('Create an incoming webhook: the gateway sends the body of each signed call as a message')
    .argument('<NAME>', 'the name of the webhook, which is the last part of its path')
    .requiredOption('--to <PEER>', 'the recipient of the messages')
    .addHelpText('after', examples('sealpost gateway hook ci --to alice'))
    .action(
      run(async (shell, { to }: { to: string }, name: string) => {
        const secret = newSecret()
        await add(shell, { kind: 'hook', name: checkedName(name), secret, to })
        await shell.output.result({ name, path: `/hooks/${name}`, secret, to }, () => `/hooks/${name}\n${secret}`)
      }),
    )
}

export function forwardCommand(run: RunAction): Command {
  return new Command('forward')
    .description(
      'Create an outgoing webhook: the gateway calls URL for each message, and settles the message on success',
    )
    .argument('<NAME>', 'a name for the webhook')
    .argument('<URL>', 'an https URL, or an http URL on this machine')
    .option('--from <PEER...>', 'forward only the messages of these peers; default: all')
    .addHelpText('after', examples('sealpost gateway forward desk http://127.0.0.1:8080/inbox --from alice'))
    .action(
      run(async (shell, { from }: { from?: readonly string[] }, name: string, url: string) => {
        const secret = newSecret()
        const entry = { name: checkedName(name), secret, url: checkedUrl(url), from: from ?? null }
        await add(shell, { kind: 'forward', ...entry })
        await shell.output.result(entry, () => secret)
      }),
    )
}

const LOOPBACK: ReadonlySet<string> = new Set(['localhost', '127.0.0.1', '[::1]'])

function checkedUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : null
  const isAllowed = url?.protocol === 'https:' || (url?.protocol === 'http:' && LOOPBACK.has(url.hostname))
  if (url && isAllowed && url.username === '' && url.password === '') return url.href
  throw new OperatingError('usage', 'Use an https URL without a password, or an http URL on this machine.')
}

export function entriesCommand(run: RunAction): Command {
  return new Command('list')
    .description('List the callers and webhooks of the gateway, without their secrets')
    .addHelpText('after', examples('sealpost gateway list --json'))
    .action(
      run(async ({ output, profile }) => {
        const entries = (await readEntries(profile)).map(publicOf)
        const row = ({ kind, name, ...rest }: ReturnType<typeof publicOf>) => [kind, name, textOf(rest)]
        await output.results(entries, () => output.table(['KIND', 'NAME', 'TERMS'], entries.map(row)))
      }),
    )
}

function publicOf(entry: GatewayEntry) {
  const { kind, name } = entry
  if (kind === 'token') return { kind, name, to: entry.to, receives: entry.receives }
  if (kind === 'hook') return { kind, name, to: entry.to }
  return { kind, name, url: entry.url, from: entry.from }
}

const textOf = (terms: object): string =>
  Object.entries(terms)
    .filter(([, value]) => value !== null && value !== false)
    .map(([key, value]) => `${key} ${escapeName(String(value))}`)
    .join(' · ')

export function removeCommand(run: RunAction): Command {
  return new Command('remove')
    .description('Remove a caller or a webhook. A running gateway refuses it immediately.')
    .argument('<NAME>', 'the name of the caller or webhook')
    .addHelpText('after', examples('sealpost gateway remove builds'))
    .action(
      run(async ({ output, profile }, _options: object, name: string) => {
        await updateJsonFile<GatewayFile>(fileOf(profile), isGatewayFile, ({ entries } = EMPTY): GatewayFile => {
          const rest = entries.filter((entry) => entry.name !== name)
          if (rest.length < entries.length) return { version: 1, entries: rest }
          throw new OperatingError('not_found', `The gateway has no entry named ${escapeName(name)}.`)
        })
        await output.result({ removed: name }, () => `removed ${escapeName(name)}`)
      }),
    )
}
