/** `sealpost request` ends when the reply has arrived, from a peer, from each member of a group, or from a pool. */
import { resolve } from 'node:path'
import { PRIORITIES, type Priority } from '@sealpost/protocol'
import { OperatingError } from '@sealpost/std'
import { Command, Option } from 'commander'
import { explainUnknown, resolveRecipient } from '../members/member-list.ts'
import { escapeName, escapeText } from '../output.ts'
import { Contacts } from '../profile/contacts.ts'
import { findGroup, findPool, type GroupReply, type PeerCalls, type RequestResult } from '../session/peer-calls.ts'
import { callPeer, NO_LIMIT_MS, SLACK_SECONDS, WAITING_CREDIT } from '../session/peer-session.ts'
import { durationOption } from '../settings.ts'
import { examples, type RunAction, type Shell, withDeadline } from '../shell.ts'
import { base64Of, readContent } from './content.ts'
import type { FileReaders } from './files.ts'
import { binaryNotice, bodyForPrograms, fileNotice, labelOf, textOf } from './incoming-message.ts'

interface RequestOptions {
  readonly file?: string
  readonly attach?: string
  readonly priority: Priority
  readonly timeout: number
  readonly pool?: boolean
  readonly ifOnline?: boolean
  readonly files?: string
}

export function requestCommand(run: RunAction): Command {
  return new Command('request')
    .description(
      'Send TEXT, the contents of a file, or stdin as a request, and print the reply. A request to a group waits for the reply of each member.',
    )
    .argument(
      '<TO>',
      "the peer's name, fingerprint or key (64 hex digits), @GROUP, or with --pool the name or id of a pool",
    )
    .argument('[TEXT]', 'the request; if TEXT and --file are omitted, the request is read from stdin')
    .option('-f, --file <PATH>', 'read the request from this file; use - for stdin')
    .option('-a, --attach <PATH>', 'attach a file of any size')
    .addOption(
      new Option('--priority <PRIORITY>', 'the priority of the request and its reply')
        .choices(PRIORITIES)
        .default('next'),
    )
    .addOption(
      durationOption(
        '--timeout <TIME>',
        'how long to wait for the reply; a reply that arrives later is delivered as a message',
        '30s',
      ),
    )
    .addOption(new Option('--pool', 'TO is a pool: send the request to one free worker').conflicts(['ifOnline']))
    .option('--if-online', 'fail immediately if the peer is offline')
    .option(
      '--files <FOLDER>',
      "save the reply's file in this folder; if this option is omitted, a reply with a file stays in the queue as a message",
    )
    .addHelpText(
      'after',
      examples(
        "sealpost request bob 'which port?'",
        'sealpost request reviewer --file change.diff --timeout 10m',
        'sealpost request bob ping --if-online --json',
        "sealpost request bob 'the plan?' --files ~/Downloads",
        "sealpost request @crew 'ready?' --timeout 5m",
        "sealpost request --pool reviewers 'review 4711' --timeout 1h",
      ),
    )
    .action(run(request))
}

async function request(shell: Shell, options: RequestOptions, to: string, text: string | undefined): Promise<void> {
  const content = await readContent({ text, file: options.file, attach: options.attach })
  const terms = async (readers: FileReaders) => {
    const file = await content.upload(shell, readers)
    return {
      bodyBase64: base64Of(content),
      ...{ priority: options.priority, ttlSeconds: 0, timeoutMs: options.timeout * 1000 },
      ...(file && { attachment: file.text }),
      ...(options.files !== undefined && { folder: resolve(options.files) }),
    }
  }
  if (options.pool) return show(shell, await requestPool(shell, to, terms))
  if (to.startsWith('@')) return showAll(shell, await requestGroup(shell, to.slice(1), terms))
  const key = await resolveRecipient(shell, to)
  const params = { to: key, ifOnline: options.ifOnline ?? false, ...(await terms(key)) }
  const answer = await awaitReply(shell, 'request', params).catch(async (error) => {
    if ((error as { code?: string }).code === 'unknown_recipient') await explainUnknown(shell, to)
    throw error
  })
  return show(shell, answer)
}

const SILENT =
  'No reply arrived in time, and the command that uses the connection of this profile does not respond. It may send the request later.'

/** Makes a call that has a time limit of its own, which a suspended process does not keep. */
async function awaitReply<M extends 'request' | 'requestGroup' | 'requestPool'>(
  asked: Shell,
  method: M,
  params: Parameters<PeerCalls[M]>[0],
): Promise<Awaited<ReturnType<PeerCalls[M]>>> {
  using shell = withDeadline(asked, params.timeoutMs / 1000 + SLACK_SECONDS, SILENT)
  return await callPeer(shell, { method, params, withinMs: NO_LIMIT_MS, credit: WAITING_CREDIT })
}

interface Terms {
  readonly bodyBase64: string
  readonly priority: Priority
  readonly ttlSeconds: number
  readonly timeoutMs: number
}

type TermsFor = (readers: FileReaders) => Promise<Terms>

async function requestPool(shell: Shell, word: string, termsFor: TermsFor): Promise<RequestResult> {
  const { id: pool, members } = findPool(await callPeer(shell, { method: 'pools', params: null }), word)
  const params = { pool, ...(await termsFor(members)) }
  return awaitReply(shell, 'requestPool', params)
}

async function requestGroup(shell: Shell, word: string, termsFor: TermsFor): Promise<readonly GroupReply[]> {
  const { id: group } = findGroup(await callPeer(shell, { method: 'groups', params: null }), word)
  const params = { group, ...(await termsFor({ group })) }
  return awaitReply(shell, 'requestGroup', params)
}

/** Prints the replies of a group. @throws OperatingError with the first code if no member has replied */
async function showAll({ output, profile }: Shell, replies: readonly GroupReply[]): Promise<void> {
  const contacts = await Contacts.read(profile.contactsFile)
  for (const { peer, code, result } of replies) {
    const name = contacts.nameOf(peer) ?? null
    if (!result) {
      if (output.isJson) await output.result({ peer, name, code }, () => '')
      output.warn(`no reply from ${escapeName(labelOf(contacts, peer))} (${code})`)
      continue
    }
    const { bodyBase64, outcome, ...answer } = result
    const body = new Uint8Array(Buffer.from(bodyBase64, 'base64'))
    const text = escapeText(textOf({ body }) ?? binaryNotice({ body }), '    ')
    const failed = answer.isError ? ' (failed)' : ''
    await output.result(
      { peer, name, code, ...answer, ...bodyForPrograms({ body }) },
      () => `${escapeName(labelOf(contacts, peer))}${failed}  ${text}${fileNotice(answer.file, outcome)}`,
    )
    if (outcome.name === 'left' || outcome.name === 'later') output.warn(NOT_SAVED)
  }
  if (replies.some(({ result }) => result !== null)) return
  throw new OperatingError(replies[0]?.code ?? 'no_responder', 'No member of the group replied.')
}

const NOT_SAVED =
  'The reply stays in the queue as a message, because its file was not saved. Save it with `sealpost listen --files FOLDER`.'

async function show({ output }: Shell, { bodyBase64, outcome, ...answer }: RequestResult): Promise<void> {
  const body = new Uint8Array(Buffer.from(bodyBase64, 'base64'))
  const text = escapeText(textOf({ body }) ?? binaryNotice({ body }), '')
  if (answer.isError) throw new OperatingError('answered_error', text)
  await output.result({ ...answer, ...bodyForPrograms({ body }) }, () => text + fileNotice(answer.file, outcome))
  if (outcome.name === 'lost') throw new OperatingError(outcome.code, 'The file of the reply is lost.')
  if (outcome.name === 'left' || outcome.name === 'later') throw new OperatingError('file_not_saved', NOT_SAVED)
}
