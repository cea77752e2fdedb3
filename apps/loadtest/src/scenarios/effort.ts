/** Whether this very program, which is the peers of some scenarios, was what held things up. */

import { figure } from '@sealpost/harness/report/text'
import { wasLimit } from '../run/result.ts'
import type { Check } from './scenario.ts'

export class Effort {
  readonly #startMs = performance.now()
  readonly #start = process.cpuUsage()

  /** Of a core, since the beginning. */
  get share(): number {
    const { user, system } = process.cpuUsage(this.#start)
    return (user + system) / 1000 / Math.max(1, performance.now() - this.#startMs)
  }
}

/** Never unmet: figures from a generator that was the limit are true, but say less of the broker than they could. */
export function generatorCheck(share: number): Check {
  const used = `${figure(share * 100)} % of a core`
  if (!wasLimit(share))
    return { about: 'cost', isMet: true, sentence: `The load generator was not the limit (${used}).` }
  return {
    about: 'cost',
    isMet: true,
    sentence: `Warning: the load generator was the limit (${used}). The broker may be faster.`,
  }
}
