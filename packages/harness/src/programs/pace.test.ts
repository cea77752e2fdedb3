import { expect, test } from 'vitest'
import { step } from './pace.ts'

test('a step that hangs is named', async () => {
  const hanging = step('bob/laptop-1 starts to listen', new Promise(() => undefined), 1)
  await expect(hanging).rejects.toMatchObject({
    code: 'step_timed_out',
    message: 'The step did not end within 0.001 s: bob/laptop-1 starts to listen.',
  })
})

test('a step settles like its promise', async () => {
  expect(await step('it ends', Promise.resolve(7))).toBe(7)
  await expect(step('it fails', Promise.reject(new Error('no')))).rejects.toThrow('no')
})
