/** What people read for a code. */
import { SealpostError } from '@sealpost/sdk'

const WORDS: Readonly<Record<string, string>> = {
  invite_malformed: 'This is no invite, or a part of it is missing. Copy the whole link.',
  invite_refused: 'This invite can’t be used: it is used up, over, or was taken back. Ask for a new one.',
  name_taken: 'Someone here has this name. Choose another one.',
  name_malformed: 'A name is 1 to 64 letters, digits and signs, without accents, emoji and / , * ( ).',
  wrong_broker: 'The server is not the broker of this invite. Nothing was sent to it.',
  connection_lost: 'The broker can’t be reached. Try again in a moment.',
  try_later: 'The broker is busy. Try again in a moment.',
  restarting: 'The broker is starting. Try again in a moment.',
  revoked: 'An admin ended your membership.',
  session_conflict: 'You are connected from somewhere else.',
  body_too_large: 'too long',
  outbox_full: 'too much waits already',
  unknown_recipient: 'no member of this mesh any more',
  maybe_sent: 'it may have been sent',
}

export function wordsFor(error: unknown): string {
  if (!(error instanceof SealpostError)) return 'Something went wrong in this page. Reload it.'
  return WORDS[error.code] ?? error.message
}

/** After "Not sent:". */
export function failureWords(code: string): string {
  return WORDS[code] ?? code.replaceAll('_', ' ')
}
