/** Tests an application's view of reactions, against a broker that follows the rules. */
import { expect, test } from 'vitest'
import { type Member, Space } from '../test/states.ts'
import { openReactions, type Reactions, type ReactionsOptions } from './reactions.ts'

const code = (of: string) => expect.objectContaining({ code: of })
const keyOf = ({ identity }: Member) => identity.signing.publicKey
const countsOf = (reactions: Reactions, target: string) =>
  Object.fromEntries([...reactions.of(target)].map(([reaction, { count, isOwn }]) => [reaction, [count, isOwn]]))

async function crew() {
  const space = await Space.make()
  const [ann, bob] = [await space.open(space.owner), await space.open()]
  await ann.state.maintainKeys()
  return { space, ann, bob }
}

/** Resolves once the condition holds, which is checked after each change. */
function watched() {
  let look = (): void => undefined
  const options: ReactionsOptions = { onChange: () => look() }
  const until = (isSo: () => boolean) =>
    new Promise<void>((resolve) => {
      look = () => {
        if (isSo()) resolve()
      }
      look()
    })
  return { options, until }
}

test('members count each reaction once, and do not count removed reactions', async () => {
  const { ann, bob } = await crew()
  const [hers, his] = [await openReactions(ann.state), await openReactions(bob.state)]
  await Promise.all([hers.add('m1', '👍'), hers.add('m1', '🎉'), hers.add('m1', '👍'), hers.add('m2', '👎')])
  await his.add('m1', '👍')
  await his.close()
  const { options, until } = watched()
  const later = await openReactions(bob.state, options)
  expect(countsOf(later, 'm1')).toEqual({ '👍': [2, true], '🎉': [1, false] })
  expect(later.of('m1').get('👍')?.authors).toEqual(new Set([keyOf(ann), keyOf(bob)]))
  await hers.remove('m1', '👍')
  await hers.remove('m1', '🎉')
  await until(() => later.of('m1').size === 1)
  expect(countsOf(later, 'm1')).toEqual({ '👍': [1, true] })
  await later.remove('m1', '👍')
  expect([later.targets, countsOf(later, 'm1')]).toEqual([['m2'], {}])
  await later.add('m1', '🌱')
  expect(countsOf(later, 'm1')).toEqual({ '🌱': [1, true] })
  await Promise.all([hers.close(), later.close()])
})

test('changes of other members arrive without a request', async () => {
  const { ann, bob } = await crew()
  const { options, until } = watched()
  const [hers, his] = [await openReactions(ann.state, options), await openReactions(bob.state)]
  await his.add('m1', '👍')
  await until(() => hers.of('m1').get('👍')?.count === 1)
  await Promise.all([hers.close(), his.close()])
})

test('no member reacts in the name of another, and malformed values do not count', async () => {
  const { ann, bob } = await crew()
  await bob.state.set(`reactions/${keyOf(ann)}/m1`, ['👍'])
  await bob.state.set(`reactions/${keyOf(bob)}/m1`, 'not a list')
  await bob.state.set(`reactions/${keyOf(bob)}/m2`, ['x'.repeat(65)])
  await bob.state.set('reactions/m3', ['👍'])
  const hers = await openReactions(ann.state)
  expect(hers.targets).toEqual([])
  await hers.add('m1', '🎉') // replaces Bob's value
  expect(countsOf(hers, 'm1')).toEqual({ '🎉': [1, true] })
  await hers.close()
})

test('two processes of one member lose none of their reactions', async () => {
  const { space, ann } = await crew()
  const again = await space.open(ann.identity)
  const [one, other] = [await openReactions(ann.state), await openReactions(again.state)]
  await Promise.all([one.close(), other.close()]) // neither process sees the other's changes
  await one.add('m1', '👍')
  await other.add('m1', '🎉')
  await one.remove('m1', '👍')
  const fresh = await openReactions(ann.state)
  expect(countsOf(fresh, 'm1')).toEqual({ '🎉': [1, true] })
  await fresh.close()
})

test('empty, too long and too many reactions are refused', async () => {
  const { ann } = await crew()
  const hers = await openReactions(ann.state)
  for (const reaction of ['', 'x'.repeat(65)])
    await expect(hers.add('m1', reaction)).rejects.toThrow(code('reaction_malformed'))
  for (let i = 0; i < 16; i++) await hers.add('m1', `${i}`)
  await expect(hers.add('m1', 'more')).rejects.toThrow(code('reaction_malformed'))
  await expect(hers.add('x'.repeat(512), '👍')).rejects.toThrow(code('state_key_malformed'))
  await hers.close()
})
