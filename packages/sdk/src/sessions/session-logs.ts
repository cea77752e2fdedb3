/** Reads what the sessions of a profile have sent, from their folders: also while other processes run the sessions. */
import type { EnvelopeId } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { ConnectOptions } from '../peer.ts'
import { askBroker, type MessageWhereabouts } from '../sent/ask-broker.ts'
import { sentMessagesIn } from '../sent/sent-records.ts'
import type { SentMessage } from '../sent/sent-states.ts'
import { readStoreRecords } from '../stores/file/file-store.ts'
import { type LocalSession, localSessions } from './local-sessions.ts'
import { existingKeys, storeOf } from './session-keys.ts'
import { folderNameOf, slotFolderOf } from './session-slots.ts'

export interface SessionLogOptions extends Pick<ConnectOptions, 'url' | 'brokerKey' | 'meshId'> {
  /** The folder of the profile. */
  readonly folder: string
  /** The passphrase of the sessions' key files, which `askBroker` reads. */
  readonly passphrase?: string
}

/** What a session has sent, as its folder contained it when it was read. */
export interface SessionLog extends Pick<LocalSession, 'label' | 'isNamed' | 'isRunning'> {
  /** Newest first. */
  readonly sent: readonly SentMessage[]
  /**
   * Asks the broker where messages of the session are, like `SentLog.askBroker`, in the name of the session.
   * @throws SealpostError `message_unknown` if the session has no keys, and the errors of `SentLog.askBroker`
   */
  askBroker(envelopeIds: readonly EnvelopeId[]): Promise<MessageWhereabouts[]>
}

/**
 * Returns the logs of the sessions of a profile that record what they send (`sentLogOf`). Omits sessions that have sent
 * nothing or whose store can't be read.
 * @example for (const { label, sent } of await sessionLogs({ ...place, folder: 'profile' })) console.log(label, sent.length)
 */
export async function sessionLogs(options: SessionLogOptions): Promise<SessionLog[]> {
  const sessions = await localSessions(options.folder)
  const logs = await Promise.all(sessions.map((session) => logOf(session, options)))
  return logs.filter(({ sent }) => sent.length > 0)
}

async function logOf({ label, isNamed, isRunning }: LocalSession, options: SessionLogOptions): Promise<SessionLog> {
  const folder = slotFolderOf(options.folder, folderNameOf(label))
  const records = await readStoreRecords(storeOf({ folder })).catch(() => []) // the session itself reports the error
  const { url, brokerKey, meshId, passphrase } = options
  return {
    ...{ label, isNamed, isRunning, sent: sentMessagesIn(records) },
    askBroker: async (envelopeIds) => {
      const keys = await existingKeys({ folder }, { passphrase })
      if (!keys) throw new SealpostError('message_unknown', 'This session has no keys, and so no messages.')
      return askBroker({ url, brokerKey, meshId, identity: keys.identity }, envelopeIds)
    },
  }
}
