/** Conformance tests for messages that are recorded as events of a space in the same commit as their deliveries. */
import type { Append, SharedBody } from '@sealpost/protocol'
import type { GroupId } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import { bytesOf, MESH, peerKeyOf, type Stage, statusesOf } from './conformance-world.ts'

const GROUP = '2a'.repeat(16) as GroupId

export function keptTests(stage: () => Stage): void {
  const bodyOf = (text: string, spaceId: GroupId | typeof MESH = MESH): SharedBody => ({
    bodyId: Buffer.from(text).toString('hex').padEnd(64, '0'),
    bytes: bytesOf(`body ${text}`),
    record: { spaceId, record: bytesOf(`record ${text}`) },
  })
  const toBoth = (body: SharedBody): Append[] => [
    stage().append('ticket', { body }),
    stage().append('ticket', { body, recipient: stage().cat }),
  ]
  const kept = async (spaceId: GroupId | typeof MESH = MESH) =>
    (await stage().world.keptMessages(MESH, spaceId)).map(({ seq, record, body }) => `${seq} ${record}, ${body}`)
  const found = (spaceId: GroupId | typeof MESH = MESH, keepsMessages = true, members = [1, 2, 3]) => {
    const space = { owner: stage().ann, keepsMessages }
    const group = spaceId === GROUP && { members: members.map(peerKeyOf) }
    return stage().world.setSpace(MESH, spaceId, { ...space, ...group })
  }

  describe('a recorded message', () => {
    test('is one event for all its deliveries, numbered in each space', async () => {
      await found()
      await found(GROUP)
      await stage().openBob()
      expect(statusesOf(await stage().store(...toBoth(bodyOf('a')), ...toBoth(bodyOf('b', GROUP))))).toEqual(
        Array(4).fill('stored'),
      )
      await stage().store(...toBoth(bodyOf('c')))
      expect(await kept()).toEqual(['1 record a, body a', '2 record c, body c'])
      expect(await kept(GROUP)).toEqual(['1 record b, body b'])
    })

    test('is recorded once when it is resent, with the same or other envelopes, also after all were settled', async () => {
      await found()
      await stage().openBob()
      const body = bodyOf('a')
      const appends = toBoth(body)
      const outcomes = await stage().store(...appends)
      expect(statusesOf(await stage().store(...appends))).toEqual(['duplicate', 'duplicate'])
      await stage().store(stage().append('another ticket', { body }))
      const refs = outcomes.map((outcome, i) => stage().refOf(outcome, { recipient: appends[i]!.recipient }))
      await stage().commit([], refs)
      await stage().there.commit({ appends: [stage().append('one more', { body })], settles: [] })
      expect(await kept()).toEqual(['1 record a, body a'])
    })

    test('is no event when none of its deliveries was stored', async () => {
      await found()
      const outcomes = await stage().store(stage().append('ticket', { body: bodyOf('a'), recipient: stage().stranger }))
      expect(statusesOf(outcomes)).toEqual(['unknown_recipient'])
      expect(await kept()).toEqual([])
    })

    test('is delivered even if its space keeps no messages, or is unknown', async () => {
      await found(GROUP, false)
      const appends = [...toBoth(bodyOf('a', GROUP)), ...toBoth(bodyOf('b'))]
      expect(statusesOf(await stage().store(...appends))).toEqual(Array(4).fill('stored'))
      expect([await kept(), await kept(GROUP)]).toEqual([[], []])
    })

    test('is delivered but not recorded once its sender no longer belongs to the group', async () => {
      await found(GROUP)
      await stage().store(...toBoth(bodyOf('before', GROUP)))
      await found(GROUP, true, [2, 3])
      const appends = toBoth(bodyOf('after', GROUP))
      expect(statusesOf(await stage().store(...appends))).toEqual(['stored', 'stored'])
      await stage().there.commit({ appends: toBoth(bodyOf('elsewhere', GROUP)), settles: [] })
      await found(GROUP)
      await stage().store(...toBoth(bodyOf('again', GROUP)))
      expect(await kept(GROUP)).toEqual(['1 record before, body before', '2 record again, body again'])
    })

    test('shares a commit with messages that are not recorded', async () => {
      await found()
      await stage().openBob()
      const { record: _, ...plain } = bodyOf('plain')
      const appends = [stage().append('alone'), ...toBoth(bodyOf('a')), ...toBoth(plain)]
      expect(statusesOf(await stage().store(...appends))).toEqual(Array(5).fill('stored'))
      expect(await kept()).toEqual(['1 record a, body a'])
    })
  })
}
