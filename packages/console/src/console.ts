/** The console as a broker serves it: static files, made by Vite when the first operator asks for them. */

import { OperatingError } from '@sealpost/std'
import { type ServedPage, servePage } from '@sealpost/ui/served-page'
import { builtPage } from './built-page.ts'

export interface Console {
  /** For every request under `CONSOLE_PATH`. */
  answer(request: Request): Promise<Response>
}

export const CONSOLE_PATH = '/console'
export const CONSOLE_FOLDER = `${CONSOLE_PATH}/`

/** No text becomes code. */
const ALLOWS = { trustedTypes: "'none'" }

/** `failed`: told why the page could not be made; whoever asked is told that it is not there. */
export function openConsole(failed: (error: OperatingError) => void): Console {
  let page: Promise<ServedPage> | null = null
  const make = async () =>
    servePage({ folder: CONSOLE_FOLDER, allows: ALLOWS, assets: await builtPage(CONSOLE_FOLDER) })
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
