import { expect, test } from 'vitest'
import { openListener } from './listener.ts'
import { emptyDatabase } from './test/database.ts'

test('concurrent requests run one after another, as the driver requires', async () => {
  const scratch = await emptyDatabase()
  const warnings: string[] = []
  const warned = ({ message }: Error) => warnings.push(message)
  process.on('warning', warned)
  const heard: string[] = []
  const ports = { onNotification: (_: string, payload: string) => heard.push(payload), onClosed: () => undefined }
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
