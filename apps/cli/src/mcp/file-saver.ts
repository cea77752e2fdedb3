/** Downloads of files. A client allows 60 s per call, so a download continues between two calls. */
import { attachmentOf, type TransferProgress } from '@sealpost/sdk/attachments'
import { OperatingError } from '@sealpost/std'
import { saveFile } from '../messages/files.ts'
import type { Shell } from '../shell.ts'
import type { UnsettledMessage } from './mail.ts'

export interface Download {
  /** The path. */
  readonly done: Promise<string>
  progress: TransferProgress
}

export class FileSaver {
  readonly #shell: Shell
  readonly #folder: string
  readonly #downloads = new Map<string, Download>()

  constructor(shell: Shell, folder: string) {
    this.#shell = shell
    this.#folder = folder
  }

  /** The download that is under way, or a new one. @throws OperatingError `no_file`, `attachment_unreadable` */
  save({ messageId, message }: UnsettledMessage): Download {
    const underWay = this.#downloads.get(messageId)
    if (underWay) return underWay
    if (message.attachment === null) throw new OperatingError('no_file', `The message ${messageId} has no file.`)
    const file = attachmentOf(message)
    if (!file)
      throw new OperatingError('attachment_unreadable', 'The file is of a later version of sealpost: update this one.')
    const noteProgress = (progress: TransferProgress) => {
      download.progress = progress
    }
    const download: Download = {
      done: saveFile(this.#shell, file, this.#folder, noteProgress),
      progress: { bytes: 0, total: file.bytes },
    }
    this.#downloads.set(messageId, download)
    download.done.catch(() => undefined) // the next call reports it
    return download
  }

  /** The caller has received the outcome. The next call starts a new download. */
  forget({ messageId }: UnsettledMessage): void {
    this.#downloads.delete(messageId)
  }
}
