/** Exports spans with the OpenTelemetry SDK, as OTLP over HTTP with JSON. Loaded only for tracing. */
import { type Context, ROOT_CONTEXT, type Span, SpanKind, SpanStatusCode, type Tracer, trace } from '@opentelemetry/api'
import { W3CTraceContextPropagator } from '@opentelemetry/core'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http'
import { resourceFromAttributes } from '@opentelemetry/resources'
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  ParentBasedSampler,
  type Sampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace'
import type { Millis } from '@sealpost/std'
import manifest from '../../package.json'
import type { Config } from '../config/config.ts'

export type Attributes = Readonly<Record<string, string | number>>

export interface Work {
  readonly name: string
  readonly tookMs: Millis
  /** Called only if the span is sampled. */
  readonly attributes: () => Attributes
  readonly isFailed?: boolean
  /** The headers of a request, which may contain the parent span. */
  readonly headers?: Headers
}

export interface Spans {
  /** Records a span. `inner` is a child of the same duration. */
  record(work: Work, inner?: Work): void
  stop(): Promise<void>
}

/** The time limit for the exporter at exit; by default, it retries for ten seconds. */
const STOP_WITHIN_MS = 1_000

type Settings = Pick<
  Config,
  'OTEL_EXPORTER_OTLP_ENDPOINT' | 'OTEL_SERVICE_NAME' | 'OTEL_TRACES_SAMPLER' | 'OTEL_TRACES_SAMPLER_ARG'
>

export function openSpans(config: Settings): Spans {
  const url = `${config.OTEL_EXPORTER_OTLP_ENDPOINT.replace(/\/+$/, '')}/v1/traces`
  const provider = new TracerProvider({
    sampler: samplerOf(config),
    resource: resourceFromAttributes({ 'service.name': config.OTEL_SERVICE_NAME, 'service.version': manifest.version }),
    spanProcessors: [new BatchSpanProcessor({ exporter: new OTLPTraceExporter({ url }) })],
  })
  const tracer = provider.getTracer('sealpost', manifest.version)
  return {
    record: (work, inner) => {
      const endMs = performance.timeOrigin + performance.now()
      const parent = parentOf(work)
      const span = startOne(tracer, work, { endMs, parent })
      const isKept = span.isRecording()
      span.end(endMs)
      // Sample whole traces; even a dropped span costs 3 µs.
      if (inner && isKept) startOne(tracer, inner, { endMs, parent: trace.setSpan(parent, span) }).end(endMs)
    },
    stop: () => Promise.race([provider.shutdown().catch(() => undefined), Bun.sleep(STOP_WITHIN_MS)]),
  }
}

function startOne(tracer: Tracer, work: Work, { endMs, parent }: { endMs: number; parent: Context }): Span {
  const kind = work.headers ? SpanKind.SERVER : SpanKind.INTERNAL
  const span = tracer.startSpan(work.name, { startTime: endMs - work.tookMs, kind }, parent)
  if (span.isRecording()) {
    span.setAttributes(work.attributes())
    if (work.isFailed) span.setStatus({ code: SpanStatusCode.ERROR })
  }
  return span
}

const propagator = new W3CTraceContextPropagator()

function parentOf({ headers }: Work): Context {
  if (!headers?.has('traceparent')) return ROOT_CONTEXT
  return propagator.extract(ROOT_CONTEXT, headers, {
    get: (carrier, name) => carrier.get(name) ?? undefined,
    keys: (carrier) => [...carrier.keys()],
  })
}

function samplerOf({ OTEL_TRACES_SAMPLER: name, OTEL_TRACES_SAMPLER_ARG: ratio }: Settings): Sampler {
  const [kind, isByParent] = name.startsWith('parentbased_') ? [name.slice(12), true] : [name, false]
  const root = rootOf(kind, ratio)
  return isByParent ? new ParentBasedSampler({ root }) : root
}

function rootOf(kind: string, ratio: number): Sampler {
  if (kind === 'always_off') return new AlwaysOffSampler()
  return kind === 'traceidratio' ? new TraceIdRatioBasedSampler(ratio) : new AlwaysOnSampler()
}
