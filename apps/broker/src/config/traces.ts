/** The settings of traces, with OpenTelemetry's names. */
import { z } from 'zod'
import { oneOf, type Setting, type SettingKind, setting, words } from './kinds.ts'

const receiver: SettingKind<string> = {
  parse: z.string().refine((text) => text === '' || (/^https?:\/\/\S+$/.test(text) && URL.canParse(text))),
  expects: 'an address like http://collector.example:4318',
}
const share: SettingKind<number> = {
  parse: z
    .string()
    .regex(/^(0|1|0?\.\d{1,9}|1\.0{1,9})$/)
    .transform(Number),
  expects: 'a share from 0 to 1',
}

export const traceSettings = {
  OTEL_EXPORTER_OTLP_ENDPOINT: setting(receiver, {
    fallback: '',
    unit: 'URL',
    meaning: 'the receiver of spans, by OTLP over HTTP, under `/v1/traces`; without it tracing is off',
  }),
  OTEL_SERVICE_NAME: setting(words('a name'), {
    fallback: 'sealpost',
    unit: 'name',
    meaning: 'the name of this service in traces',
  }),
  OTEL_TRACES_SAMPLER: setting(
    oneOf(
      'always_on',
      'always_off',
      'traceidratio',
      'parentbased_always_on',
      'parentbased_always_off',
      'parentbased_traceidratio',
    ),
    {
      fallback: 'parentbased_always_on',
      unit: 'sampler',
      meaning: 'which spans are kept; with `parentbased_…`, a request that names a trace decides for its own span',
    },
  ),
  OTEL_TRACES_SAMPLER_ARG: setting(share, {
    fallback: 1,
    unit: 'share',
    meaning: 'the share of traces that `…traceidratio` keeps',
  }),
} satisfies Record<string, Setting<unknown>>
