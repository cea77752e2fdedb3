/** What a peer is called unless it says otherwise. */
import { userInfo } from 'node:os'
import { isChosenName, NAME_LENGTH_MAX, tidyName } from '@sealpost/std'

/** The name of the account, without what a name of a member may not have. */
export function userName(account = userInfo().username): string {
  const given = account
    .replace(/[^ -~]|[/,*()]/g, '')
    .replace(/^[ -]+/, '')
    .slice(0, NAME_LENGTH_MAX)
  const name = tidyName(given)
  return isChosenName(name) ? name : 'somebody'
}
