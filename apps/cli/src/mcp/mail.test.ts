import { Message } from '@sealpost/sdk'
import { expect, test } from 'vitest'
import { McpInbox } from './mail.ts'

type Desk = ConstructorParameters<typeof Message>[0]

const never = new AbortController().signal

function world({ readForMs = 60_000 } = {}) {
  const rings: number[] = []
  const fates: string[] = []
  const desk = {
    settle: ({ envelopeId }: Message) => void fates.push(`settle ${envelopeId}`),
    retry: ({ envelopeId }: Message, afterMs: number) => void fates.push(`retry ${envelopeId} ${afterMs}`),
    reject: ({ envelopeId }: Message, reason: string) => void fates.push(`reject ${envelopeId} ${reason}`),
  } as unknown as Desk
  const mail: McpInbox = new McpInbox({ onUnread: () => rings.push(mail.counts.unread), readForMs })
  const come = (envelopeId: string, sender = 'ab') =>
    mail.add(
      new Message(desk, {
        pushed: { envelopeId, sender },
        opened: { header: {}, body: new Uint8Array() },
        from: { user: sender, deviceLabel: null },
      } as any),
    )
  return { mail, come, rings, fates }
}

test('a message is unread, then open, then settled', async () => {
  const { mail, come, rings, fates } = world()
  const done = come('1')
  expect([mail.counts, rings]).toEqual([{ unread: 1, open: 0 }, [1]])
  mail.markRead(mail.unread)
  expect(mail.counts).toEqual({ unread: 0, open: 1 })
  mail.settle(mail.all.map(({ messageId }) => messageId))
  await done
  expect([mail.counts, fates]).toEqual([{ unread: 0, open: 0 }, ['settle 1']])
})

test('a batch with one unknown message has no effect', () => {
  const { mail, come, fates } = world()
  void come('1')
  const ids = [mail.all[0]!.messageId, 'unknown']
  expect(() => mail.settle(ids)).toThrow(expect.objectContaining({ code: 'message_unknown' }))
  expect(() => mail.retry(ids, 0)).toThrow(expect.objectContaining({ code: 'message_unknown' }))
  expect([fates, mail.counts.unread]).toEqual([[], 1])
})

test('a message named twice is returned once, and a rejected message carries its reason', () => {
  const { mail, come, fates } = world()
  void come('1')
  void come('2')
  const [first, second] = mail.all.map(({ messageId }) => messageId)
  mail.retry([first!, first!], 5_000)
  mail.reject([second!], 'not mine')
  expect(fates).toEqual(['retry 1 5000', 'reject 2 not mine'])
})

test("a sender that reuses another sender's envelope id does not affect that message", () => {
  const { mail, come } = world()
  void come('1', 'ab')
  void come('1', 'cd')
  const [first, second] = mail.all
  expect(first!.messageId).not.toBe(second!.messageId)
  mail.settle([second!.messageId])
  expect(mail.all).toEqual([first])
})

test('a message that was read but forgotten becomes unread again and causes a notification', async () => {
  const { mail, come, rings } = world({ readForMs: 1 })
  void come('1')
  void come('2')
  mail.markRead(mail.all)
  mail.settle([mail.all[0]!.messageId])
  await mail.whenUnread(20_000, never)
  expect(mail.unread).toMatchObject([{ message: { envelopeId: '2' }, timesRead: 1 }])
  expect(rings).toEqual([1, 2, 1])
})

test('waiting ends with a message, on timeout, or on the signal', async () => {
  const { mail, come } = world()
  await mail.whenUnread(1, never)
  await mail.whenUnread(60_000, AbortSignal.timeout(1))
  const waiting = mail.whenUnread(60_000, never)
  void come('1')
  await waiting
  expect(mail.counts.unread).toBe(1)
})

test('a message that another session is given leaves the inbox, and reading is reported', async () => {
  const { mail, come, fates } = world()
  const read: string[] = []
  mail.onRead = ({ envelopeId }) => read.push(envelopeId)
  const [withdrawn, stays] = [come('1'), come('2')]
  const [first, second] = mail.all
  mail.withdraw(first!.message)
  await withdrawn
  mail.markRead([second!])
  expect([mail.counts, read, fates]).toEqual([{ unread: 0, open: 1 }, ['2'], []])
  expect(() => mail.settle([first!.messageId])).toThrow(expect.objectContaining({ code: 'message_unknown' }))
  mail.settle([second!.messageId])
  await stays
})
