/** What a view asks for, and how far that is: every view shows all three states. */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import { Refused } from './api.ts'

export type Asked<T> =
  | { readonly state: 'loading' }
  | { readonly state: 'failed'; readonly why: string }
  /** `why`: asking again failed; what is shown is from before. */
  | { readonly state: 'ready'; readonly value: T; readonly why: string | null }

export const whyOf = (error: unknown): string => {
  if (!(error instanceof Refused)) throw error
  return error.message.replaceAll('`', '').replace(/^./, (letter) => letter.toUpperCase())
}

/** Asks at once, whenever `about` changes, every `everyMs`, and when told to. */
export function useAsked<T>(about: string, ask: () => Promise<T>, everyMs = 5000): [Asked<T>, () => void] {
  const [asked, setAsked] = useState<Asked<T>>({ state: 'loading' })
  const current = useRef(about)
  const asking = useRef(ask)
  current.current = about
  asking.current = ask
  const again = useCallback(async () => {
    const before = current.current
    const answered = (next: (was: Asked<T>) => Asked<T>) => before === current.current && setAsked(next)
    try {
      const value = await asking.current()
      answered(() => ({ state: 'ready', value, why: null }))
    } catch (error) {
      const why = whyOf(error)
      answered((was) => (was.state === 'ready' ? { ...was, why } : { state: 'failed', why }))
    }
  }, [])
  useEffect(() => {
    setAsked({ state: 'loading' })
    void again()
    const timer = setInterval(() => void again(), everyMs)
    return () => clearInterval(timer)
  }, [about, everyMs, again])
  return [asked, () => void again()]
}
