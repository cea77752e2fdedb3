/** The overview as it changes, and the last half hour before it. */
import type { Overview, Sample, SampleHistory } from '@sealpost/operator'
import { useEffect, useState } from 'preact/hooks'
import type { Api } from './api.ts'
import { whyOf } from './asked.ts'

export interface Live {
  readonly overview: Overview | null
  readonly samples: readonly Sample[]
  /** Why nothing is heard; null while something is. */
  readonly away: string | null
}

const AGAIN_MIN_MS = 1000
const AGAIN_MAX_MS = 15_000
const SAMPLES_MAX = 900

export function useLive(api: Api): Live {
  const [live, setLive] = useState<Live>({ overview: null, samples: [], away: null })
  useEffect(() => {
    const gone = new AbortController()
    void follow(api, gone.signal, (change) => setLive((was) => ({ ...was, ...change(was) })))
    return () => gone.abort()
  }, [api])
  return live
}

type Change = (change: (was: Live) => Partial<Live>) => void

async function follow(api: Api, signal: AbortSignal, change: Change): Promise<void> {
  for (let pauseMs = AGAIN_MIN_MS; !signal.aborted; pauseMs = Math.min(AGAIN_MAX_MS, 2 * pauseMs)) {
    try {
      const { samples } = await api.get<SampleHistory>('/history')
      change(() => ({ samples }))
      await api.listen((overview) => {
        pauseMs = AGAIN_MIN_MS
        change((was) => ({ overview, away: null, samples: [...was.samples, overview.now].slice(-SAMPLES_MAX) }))
      }, signal)
    } catch (error) {
      if (!signal.aborted) change(() => ({ away: whyOf(error) }))
    }
    await new Promise((resolve) => setTimeout(resolve, pauseMs))
  }
}
