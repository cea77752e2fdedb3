/** The statements that one connection has prepared, by their text. */
import type { PipeRequest } from './pipe-request.ts'

interface Prepared {
  readonly name: string
  /** What was skipped behind an error is not; what was not may be. */
  state: 'prepared' | 'unknown'
}

export class Statements {
  private readonly byText = new Map<string, Prepared>()
  /** By the run that goes on. */
  private fresh: Prepared[] = []

  /** Answers its name, for the message behind. */
  prepare(request: PipeRequest, text: string): string {
    let statement = this.byText.get(text)
    if (statement?.state === 'prepared') return statement.name
    if (statement) request.close(statement.name)
    statement ??= { name: `p${this.byText.size + 1}`, state: 'prepared' }
    statement.state = 'prepared'
    this.byText.set(text, statement)
    this.fresh.push(statement)
    request.parse(statement.name, text)
    return statement.name
  }

  /** The run went well. */
  keep(): void {
    this.fresh = []
  }

  /** It failed. */
  doubt(): void {
    for (const statement of this.fresh) statement.state = 'unknown'
    this.fresh = []
  }
}
