/** What a run tells at its end: the report on stdout, and the files that were asked for. */
import type { LoadOptions } from '../command/arguments.ts'
import { type Page, renderPage } from './page.ts'

export interface Report {
  readonly text: string
  readonly json: object
  readonly isGood: boolean
  /** Null: such a run has none. */
  readonly page: Omit<Page, 'command'> | null
}

/** @returns the exit code */
export async function tell({ text, json, isGood, page }: Report, { jsonFile, htmlFile, command }: LoadOptions) {
  process.stdout.write(text)
  if (jsonFile) await Bun.write(jsonFile, `${JSON.stringify(json, null, 2)}\n`)
  if (htmlFile && page) await Bun.write(htmlFile, renderPage({ command, ...page }))
  return isGood ? 0 : 1
}
