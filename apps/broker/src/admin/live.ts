/**
 * Server-sent events: an overview with each sample. A stream ends after five minutes, so that a client must present a
 * valid token again.
 */

import type { Views } from './reports/views.ts'
import type { BrokerSamples } from './samples.ts'

/** A client that does not read is disconnected; the next overview contains what it missed. */
const WAITING_MAX = 3
const ENDS_AFTER_MS = 5 * 60_000

export function liveAnswer(
  { views, history }: { views: Views; history: BrokerSamples },
  signal: AbortSignal,
): Response {
  let leave: () => void = () => undefined
  const events = new ReadableStream<Uint8Array>(
    {
      start: (controller) => {
        const send = sender(controller, views, () => leave())
        leave = history.listen(send)
        signal.addEventListener('abort', () => leave(), { once: true })
        send()
      },
      cancel: () => leave(),
    },
    { highWaterMark: WAITING_MAX },
  )
  const headers = { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store', 'X-Accel-Buffering': 'no' }
  return new Response(events, { headers })
}

function sender(controller: ReadableStreamDefaultController<Uint8Array>, views: Views, leave: () => void): () => void {
  const encoder = new TextEncoder()
  const end = () => {
    leave()
    controller.close()
  }
  const untilMs = performance.now() + ENDS_AFTER_MS
  let isAsking = false
  const send = async () => {
    if (isAsking) return
    isAsking = true
    try {
      const overview = await views.overview()
      if ((controller.desiredSize ?? 0) <= 0) throw new Error('the client does not read')
      if (performance.now() > untilMs) return end()
      controller.enqueue(encoder.encode(`event: overview\ndata: ${JSON.stringify(overview)}\n\n`))
    } catch {
      leave()
      controller.error()
    } finally {
      isAsking = false
    }
  }
  return () => void send()
}
