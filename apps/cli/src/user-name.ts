/** What a peer is called unless it says otherwise. */
import { userInfo } from 'node:os'
import { NAME_LENGTH_MAX } from './contacts.ts'

/** The name of the account, printable ASCII as names of members are. */
export function userName(): string {
  const name = userInfo()
    .username.replace(/[^ -~]/g, '')
    .slice(0, NAME_LENGTH_MAX)
  return name || 'somebody'
}
