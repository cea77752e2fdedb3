import { expect, test } from 'vitest'
import { clientSamples } from '../vectors/samples.ts'
import { decodeFields, encodeFields } from './json.ts'

test('the fields of every frame survive a JSON round trip', () => {
  expect(clientSamples.length).toBeGreaterThan(5)
  for (const { frame } of clientSamples)
    expect(decodeFields(frame.type, JSON.parse(JSON.stringify(encodeFields(frame))))).toEqual({ ok: true, frame })
})

test.each([null, 7, 'text', [], {}, { ids: [] }, { ids: [1], type: 'settle' }, { ids: [1], more: 1 }, { ids: ['1'] }])(
  '%j is not a valid settle',
  (fields) => {
    expect(decodeFields('settle', fields)).toMatchObject({ ok: false, code: 'frame_malformed' })
  },
)
