/** Answers in lines that are taken up again where they were cut, until the broker has said that one is whole. */
import { SealpostError } from '../errors.ts'
import type { EventLine, Line } from './lines.ts'
import type { SpaceCalls, StreamQuestion } from './space-calls.ts'

export interface ResumingParts {
  readonly calls: Pick<SpaceCalls, 'stream'>
  readonly pause: (tries: number, signal?: AbortSignal) => Promise<void>
}

/** Cuts in a row without a line between them. */
const CUTS_MAX = 8

interface Progress {
  query: StreamQuestion['query']
  cuts: number
  isOver: boolean
  /** What came was a page, and there is a next one. */
  hasMore: boolean
}

/** @throws SealpostError `connection_lost` when it is cut again and again, and what the broker refuses */
export async function* eventLines(parts: ResumingParts, question: StreamQuestion): AsyncGenerator<EventLine> {
  const progress: Progress = { query: question.query, cuts: 0, isOver: false, hasMore: false }
  const { signal } = question
  for (;;) {
    yield* oneAnswer(parts, { ...question, query: progress.query }, progress)
    if (progress.isOver || progress.query.limit === 0 || signal?.aborted) return
    if (progress.hasMore) continue
    progress.cuts += 1
    if (progress.cuts > CUTS_MAX) throw cutOff()
    await parts.pause(progress.cuts, signal)
  }
}

async function* oneAnswer(
  { calls }: ResumingParts,
  question: StreamQuestion,
  progress: Progress,
): AsyncGenerator<EventLine> {
  progress.hasMore = false
  try {
    for await (const line of await calls.stream(question)) {
      progress.cuts = 0
      progress.query = resumed(progress.query, line)
      if (line.type === 'event') yield line
      if (line.type !== 'end') continue
      progress.hasMore = line.hasMore
      progress.isOver = !line.hasMore && question.query.follow === undefined
    }
  } catch (error) {
    // A body that breaks off is a cut; what was refused or makes no sense is none. Only a reader that follows waits longer
    // than the patience of one request.
    const isFollowed = question.query.follow !== undefined
    const isFinal = error instanceof SealpostError && !(isFollowed && error.code === 'connection_lost')
    if (isFinal && !question.signal?.aborted) throw error
  }
}

/** Where the next answer is to begin. */
function resumed(query: StreamQuestion['query'], line: Line): StreamQuestion['query'] {
  if (line.type !== 'event') return query
  const rest = typeof query.limit === 'number' ? { limit: query.limit - 1 } : {}
  return { ...query, ...rest, after: line.seq }
}

const cutOff = (): SealpostError =>
  new SealpostError('connection_lost', 'The answer was cut again and again.', { isRetryable: true })
