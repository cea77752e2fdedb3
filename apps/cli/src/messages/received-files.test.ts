import { Message } from '@sealpost/sdk'
import { expect, test } from 'vitest'
import { UnsavedFiles } from './files.ts'

/** Leaves messages open, and records which were returned. */
function world(bodyBytes: number) {
  const givenBack: string[] = []
  const desk = { retry: ({ envelopeId }: Message, afterMs: number) => void givenBack.push(`${envelopeId} ${afterMs}`) }
  const unsaved = new UnsavedFiles()
  const leave = (envelopeId: string) =>
    unsaved.leave(
      new Message(
        desk as any,
        {
          pushed: { envelopeId, sender: 'ab' },
          opened: { header: {}, body: new Uint8Array(bodyBytes) },
          from: { user: 'ab', deviceLabel: null },
        } as any,
      ),
    )
  return { givenBack, leave }
}

test('64 messages are held, and the next one is returned for the maximum delay', () => {
  const { givenBack, leave } = world(10)
  const areNew = Array.from({ length: 65 }, (_, i) => leave(String(i)))
  expect(areNew).toEqual(Array(65).fill(true))
  expect(givenBack).toEqual(['64 300000'])
})

test('large messages are held up to 256 KiB, so that the broker still pushes others', () => {
  const { givenBack, leave } = world(60 * 1024)
  for (let i = 0; i < 5; i++) leave(String(i))
  expect(givenBack).toEqual(['4 300000'])
})

test('a redelivered message is not new', () => {
  const { leave } = world(300 * 1024)
  expect([leave('1'), leave('1'), leave('2')]).toEqual([true, false, true])
})
