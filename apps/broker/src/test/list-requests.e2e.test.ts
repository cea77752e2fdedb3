/** Tests requests to groups and pools through a running broker. */
import { groupsOf } from '@sealpost/sdk/groups'
import { poolsOf } from '@sealpost/sdk/pools'
import { expect, test } from 'vitest'
import { codeOf, Member } from './member.ts'
import { sharedWorlds } from './shared-worlds.ts'

const shared = sharedWorlds()

test('a request to a group collects the reply of each member, or the reason why there is none', async () => {
  const world = await shared()
  const [ann, ben, cat] = await Member.enterMany(world, 3)
  const group = await groupsOf(ann.peer).create('crew', [ben.peer.key, cat.peer.key])
  ben.peer.onMessage(async (message) => {
    expect([message.isRequest, message.group?.id]).toEqual([true, group.id])
    await message.reply(`${message.text()} yes`)
  })
  await cat.peer.updateConsent({ block: [ann.peer.key] })
  const { members, replies } = await group.request('ready?', { timeoutMs: 60_000 })
  expect((await members.get(ben.peer.key))!.text()).toBe('ready? yes')
  const outcomes = (await replies).map(({ peer, reply, error }) => [peer, reply?.text() ?? error!.code])
  expect(outcomes.sort()).toEqual(
    [
      [ben.peer.key, 'ready? yes'],
      [cat.peer.key, 'not_allowed'],
    ].sort(),
  )
  expect(ann.received).toEqual([]) // a reply to a request is not a message
})

test('a request to a pool gets the reply of one free worker', async () => {
  const world = await shared()
  const [ann, ben, cat] = await Member.enterMany(world, 3)
  const pool = await poolsOf(ann.peer).create('workers', [ben.peer.key, cat.peer.key])
  for (const worker of [ben, cat]) {
    worker.peer.onMessage(async (message) => {
      expect(message.pool?.id).toBe(pool.id)
      await message.reply(`done ${message.text()}`)
    })
    await (await poolsOf(worker.peer).find(pool.id)).join()
  }
  const replies = await Promise.all(['a', 'b', 'c'].map((text) => pool.request(text)))
  expect(replies.map((reply) => reply.text())).toEqual(['done a', 'done b', 'done c'])
  const ended = await poolsOf(ann.peer).create('empty', [cat.peer.key])
  cat.peer.onMessage(() => new Promise(() => undefined))
  expect(await codeOf(ended.request('x', { timeoutMs: 300 }))).toBe('timeout')
  await ended.delete()
  expect(await codeOf(ended.request('x'))).toBe('unknown_pool')
})
