/** How far a file has come, as a bar on a terminal. Where nobody looks there is none. */
import type { Progress } from '@sealpost/sdk/attachments'
import cliProgress from 'cli-progress'
import type { Output } from './output.ts'

export interface TransferBar extends Disposable {
  update(progress: Progress): void
}

const MIB = 2 ** 20
const FORMAT = '{bar} {percentage} %  {done} of {size} MB  {what}'

/** `what` is text of ours, or escaped. */
export function openBar(
  { isLively }: Pick<Output, 'isLively'>,
  what: string,
  stream: NodeJS.WritableStream = process.stderr,
): TransferBar {
  if (!isLively) return { update: () => undefined, [Symbol.dispose]: () => undefined }
  const options = { format: FORMAT, stream, barsize: 24, hideCursor: true, clearOnComplete: true }
  const bar = new cliProgress.SingleBar(options, cliProgress.Presets.shades_classic)
  let isOpen = false
  return {
    update: ({ bytes, total }) => {
      const facts = { what, done: (bytes / MIB).toFixed(1), size: (total / MIB).toFixed(1) }
      if (isOpen) bar.update(bytes, facts)
      else bar.start(total, bytes, facts)
      isOpen = true
    },
    [Symbol.dispose]: () => {
      if (isOpen) bar.stop()
    },
  }
}
