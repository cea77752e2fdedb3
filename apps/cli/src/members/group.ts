/**
 * `sealpost group` manages groups: a message to several peers is sealed and stored once. `sealpost pool` manages pools:
 * each message goes to one free worker.
 */
import { PRIORITIES, type Priority } from '@sealpost/protocol'
import type { PeerKey } from '@sealpost/sdk'
import { Command, Option } from 'commander'
import { base64Of, readContent } from '../messages/content.ts'
import { type DeliveryTime, deliveryTimeOptions, notBeforeOf, reportOutcomes } from '../messages/delivery.ts'
import { takeCommand } from '../messages/listen.ts'
import {
  awaitEach,
  countOf,
  sayOne,
  sizeOf,
  type WaitOptions,
  waitOptions,
  waitUntil,
  wishesFor,
} from '../messages/send-many.ts'
import { escapeName } from '../output.ts'
import type { DeviceResult } from '../session/bulk-calls.ts'
import { findGroup, findPool, type GroupFacts, type PoolFacts } from '../session/peer-calls.ts'
import { callPeer } from '../session/peer-session.ts'
import { durationOption, parseDuration } from '../settings.ts'
import { examples, type RunAction, type Shell, withDeadline } from '../shell.ts'
import { declineGroup } from './group-leaves.ts'
import { deleteCommand, findMemberList, type MemberListSpec, memberListCommands } from './member-list.ts'

const GROUPS: MemberListSpec<GroupFacts> = {
  noun: 'group',
  argument: ['<GROUP>', 'the name of the group, or its id (32 hex digits)'],
  example: 'crew',
  descriptions: {
    create: 'Create a group that consists of the given peers and you',
    list: 'List the groups that you are a member of or own',
    add: "Add members to a group. Only the group's owner can do this.",
    remove: "Remove members from a group. Removed members can't open messages that are sent afterwards.",
    delete: "Delete a group permanently. Only the group's owner can do this. Nobody can send to a deleted group.",
  },
  list: (shell) => callPeer(shell, { method: 'groups', params: null }),
  named: findGroup,
  create: (shell, params) => callPeer(shell, { method: 'createGroup', params }),
  change: (shell, { id: group }, change) => callPeer(shell, { method: 'changeGroup', params: { group, ...change } }),
  delete: (shell, { id: group }) => callPeer(shell, { method: 'deleteGroup', params: { group } }),
}

export function groupCommand(run: RunAction): Command {
  const group = new Command('group').description('Manage groups, and send messages to all of their members')
  for (const command of memberListCommands(run, GROUPS)) group.addCommand(command)
  return group
    .addCommand(groupSendCommand(run))
    .addCommand(leaveCommand(run))
    .addCommand(deleteCommand(run, GROUPS))
    .addHelpText(
      'after',
      examples('sealpost group create crew bob carol', "sealpost group send crew 'lunch?'", 'sealpost group list'),
    )
}

function leaveCommand(run: RunAction): Command {
  return new Command('leave')
    .description(
      "Leave a group. The owner's next command that receives messages removes you; until then, your commands decline the messages of the group.",
    )
    .argument(...GROUPS.argument)
    .addHelpText('after', examples('sealpost group leave crew'))
    .action(
      run(async (shell, _options: object, word: string) => {
        const group = await findMemberList(shell, GROUPS, word)
        await callPeer(shell, { method: 'leaveGroup', params: { group: group.id } })
        await declineGroup(shell.profile, group)
        await shell.output.result({ left: group.id }, () => `left ${escapeName(group.name)}`)
      }),
    )
}

interface SendOptions extends DeliveryTime, WaitOptions {
  readonly file?: string
  /** Set only for groups. */
  readonly keep?: boolean
  /** Set only for pools. */
  readonly attach?: string
  readonly priority: Priority
  readonly ttl?: number
  readonly timeout: number
}

function groupSendCommand(run: RunAction): Command {
  return new Command('send')
    .description(
      'Send TEXT or stdin to every member of a group as a message, optionally with a file. The command succeeds when the broker has stored the message for each member.',
    )
    .argument(...GROUPS.argument)
    .argument('[TEXT]', 'the message; if TEXT and --file are omitted, the message is read from stdin')
    .option('-f, --file <PATH>', 'attach a file of any size; to resume an interrupted upload, run the command again')
    .addOption(
      new Option(
        '--keep',
        `record the message in the group's history; requires "sealpost space open --messages"`,
      ).conflicts(['at', 'in']),
    )
    .addOption(new Option('--priority <PRIORITY>', 'the priority of the message').choices(PRIORITIES).default('next'))
    .option(
      '--ttl <TIME>',
      'how long the broker stores the message for an offline recipient, such as 2h or 14d',
      parseDuration,
    )
    .addOption(durationOption('--timeout <TIME>', 'how long to wait for the broker', '30s'))
    .addOption(deliveryTimeOptions()[0]!)
    .addOption(deliveryTimeOptions()[1]!)
    .addOption(waitOptions()[0])
    .addOption(waitOptions()[1])
    .addHelpText(
      'after',
      examples(
        "sealpost group send crew 'lunch?'",
        'git diff | sealpost group send crew',
        "sealpost group send crew 'who is in?' --wait confirmed --timeout 1h",
      ),
    )
    .action(run(sendToGroup))
}

async function sendToGroup(asked: Shell, options: SendOptions, word: string, text: string | undefined): Promise<void> {
  const { timeout, keep: isKept = false, priority, ttl: ttlSeconds = 0 } = options
  const content = await readContent({ text, file: undefined, attach: options.file })
  const found = await findMemberList(asked, GROUPS, word)
  const { id: group, name } = found
  const wishes = wishesFor(options, await countOf(asked, { peers: [], groups: [found] }))
  const file = await content.upload(asked, { group })
  const wait = waitUntil(options)
  using shell = withDeadline(
    asked,
    timeout,
    `The broker did not store the message for all members within ${timeout} s. ${KEPT}`,
  )
  const terms = { priority, ttlSeconds, ...wishes, ...(file && { attachment: file.text }) }
  const params = { bodyBase64: base64Of(content), ...terms }
  const { notBefore } = notBeforeOf(options)
  const call = { withinMs: timeout * 1000 }
  const stored: readonly DeviceResult[] = await (notBefore === undefined
    ? callPeer(shell, { method: 'sendToGroup', params: { ...params, group, isKept }, ...call })
    : callPeer(shell, { method: 'sendEach', params: { ...params, peers: [], groups: [group], notBefore }, ...call }))
  await file?.done()
  const outcomes = await awaitEach(asked, stored, wait)
  const bytes = content.body.length
  const size = file ? `${escapeName(file.name)}, ${file.bytes} bytes` : `${bytes} bytes`
  const json = { group: name, bytes, members: outcomes }
  const what = `in ${escapeName(name)}, ${size}`
  await reportOutcomes(asked, { outcomes, json, what, noun: 'member', state: wait.goal })
}

const KEPT = "The next command of this profile sends it to the remaining members. Don't send it again."

const POOLS: MemberListSpec<PoolFacts> = {
  noun: 'pool',
  argument: ['<POOL>', 'the name of the pool, or its id (64 hex digits)'],
  example: 'reviewers',
  descriptions: {
    create: 'Create a pool with the given peers as workers. You are a worker only if you list yourself.',
    list: 'List the pools of the mesh. Every member of the mesh can send to each pool.',
    add: "Add workers to a pool. Only the pool's owner can do this.",
    remove:
      'Remove workers from a pool. Removed workers receive no further messages, not even messages that are already queued.',
    delete:
      "Delete a pool permanently. Only the pool's owner can do this. Nobody can send to a deleted pool, and its queued messages expire.",
  },
  list: (shell) => callPeer(shell, { method: 'pools', params: null }),
  named: findPool,
  create: (shell, params) => callPeer(shell, { method: 'createPool', params }),
  change: (shell, { id: pool }, change) => callPeer(shell, { method: 'changePool', params: { pool, ...change } }),
  delete: (shell, { id: pool }) => callPeer(shell, { method: 'deletePool', params: { pool } }),
}

export function poolCommand(run: RunAction): Command {
  const pool = new Command('pool').description('Manage pools, and send each message to one free worker')
  for (const command of memberListCommands(run, POOLS)) pool.addCommand(command)
  return pool
    .addCommand(poolSendCommand(run))
    .addCommand(takeCommand(run))
    .addCommand(deleteCommand(run, POOLS))
    .addHelpText(
      'after',
      examples(
        'sealpost pool create reviewers bob carol',
        'git diff | sealpost pool send reviewers',
        "sealpost pool take reviewers --exec './review.sh'",
        "sealpost listen --pool reviewers --exec './review.sh'",
      ),
    )
}

function poolSendCommand(run: RunAction): Command {
  return new Command('send')
    .description(
      'Send TEXT, the contents of a file, or stdin to a free worker of a pool. The command succeeds when the broker has stored the message.',
    )
    .argument(...POOLS.argument)
    .argument('[TEXT]', 'the message; if TEXT and --file are omitted, the message is read from stdin')
    .option('-f, --file <PATH>', 'read the message from this file; use - for stdin')
    .option('-a, --attach <PATH>', 'attach a file of any size, which every worker of the pool can open')
    .addOption(new Option('--priority <PRIORITY>', 'the priority of the message').choices(PRIORITIES).default('next'))
    .option(
      '--ttl <TIME>',
      'how long the broker stores the message while no worker is free, such as 2h or 14d',
      parseDuration,
    )
    .addOption(durationOption('--timeout <TIME>', 'how long to wait for the broker', '30s'))
    .addOption(deliveryTimeOptions()[0]!)
    .addOption(deliveryTimeOptions()[1]!)
    .addOption(waitOptions()[0])
    .addOption(waitOptions()[1])
    .addHelpText(
      'after',
      examples(
        "sealpost pool send reviewers 'look at 4711'",
        'git diff | sealpost pool send reviewers',
        "sealpost pool send reviewers 'look at 4711' --wait confirmed --timeout 1h",
      ),
    )
    .action(run(sendToPool))
}

async function sendToPool(asked: Shell, options: SendOptions, word: string, text: string | undefined): Promise<void> {
  const { timeout, file: path, attach, priority, ttl: ttlSeconds = 0 } = options
  const content = await readContent({ text, file: path, attach })
  const { id: pool, name, members } = await findMemberList(asked, POOLS, word)
  const file = await content.upload(asked, members)
  const wait = waitUntil(options)
  using shell = withDeadline(
    asked,
    timeout,
    `The broker did not confirm within ${timeout} s that it stored the message. It may have stored it.`,
  )
  const terms = { priority, ttlSeconds, ...notBeforeOf(options), ...(file && { attachment: file.text }) }
  const params = { pool, bodyBase64: base64Of(content), ...terms, ...wishesFor(options, 1) }
  const receipt = await callPeer(shell, { method: 'sendToPool', params, withinMs: timeout * 1000 })
  await file?.done()
  const bytes = content.body.length
  const facts = { pool, name, bytes, stored: true, ...(file && { file: { name: file.name, bytes: file.bytes } }) }
  const to = pool as string as PeerKey
  const [outcome] = await awaitEach(asked, [{ peer: to, envelopeId: receipt.envelopeId, code: null }], wait)
  await sayOne(
    asked,
    { ...facts, ...receipt },
    { outcome: outcome!, goal: wait.goal, name, size: sizeOf(content, file) },
  )
}
