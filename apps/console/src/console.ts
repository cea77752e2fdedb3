/** The console as a broker serves it: static files, made by Vite when the first operator asks for them. */
import { type ServedPage, servePage } from '@sealpost/demo/served-page'
import { OperatingError } from '@sealpost/std'
import { builtPage } from './built-page.ts'

export interface Console {
  /** For every request under `CONSOLE_PATH`. */
  answer(request: Request): Promise<Response>
}

export const CONSOLE_PATH = '/console'
export const CONSOLE_FOLDER = `${CONSOLE_PATH}/`

/** Nothing but what was served with the page runs, is loaded or is asked, and no text becomes markup or code. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ')

/** `failed`: told why the page could not be made; whoever asked is told that it is not there. */
export function openConsole(failed: (error: OperatingError) => void): Console {
  let page: Promise<ServedPage> | null = null
  const make = async () =>
    servePage({ folder: CONSOLE_FOLDER, policy: POLICY, assets: await builtPage(CONSOLE_FOLDER) })
  return {
    answer: async (request) => {
      page ??= make()
      try {
        return (await page).answer(request)
      } catch (error) {
        page = null // the next one may have more luck
        if (!(error instanceof OperatingError)) throw error
        failed(error)
        return Response.json({ code: error.code }, { status: 503 })
      }
    },
  }
}
