/** What a peer is called unless it says otherwise. */
import { userInfo } from 'node:os'
import { NAME_LENGTH_MAX, tidyName } from '@sealpost/std'

/** The name of the account, without what a name of a member may not have. */
export function userName(account = userInfo().username): string {
  const name = account
    .replace(/[^ -~]|[/,*()]/g, '')
    .replace(/^[ -]+/, '')
    .slice(0, NAME_LENGTH_MAX)
  return tidyName(name) || 'somebody'
}
