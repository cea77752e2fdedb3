import { expect, test } from 'vitest'
import { openListener } from './listener.ts'
import { scratchDatabase } from './testing.ts'

test('what is asked at once is asked in turn, as its driver wants it', async () => {
  const scratch = await scratchDatabase()
  const warnings: string[] = []
  const warned = ({ message }: Error) => warnings.push(message)
  process.on('warning', warned)
  const heard: string[] = []
  const ports = { heard: (_: string, payload: string) => heard.push(payload), gone: () => undefined }
  const listener = await openListener(scratch.url, 'a listener', ports)
  await listener.listen(['news'])
  const payloads = ['1', '2', '3', '4']
  const said = payloads.map((payload) => listener.notify([{ channel: 'news', payload }]))
  await Promise.all([...said, listener.probe()])
  await expect.poll(() => heard).toEqual(payloads)
  expect(warnings).toEqual([])
  process.off('warning', warned)
  await listener.close()
  await scratch.drop()
})
