/**
 * Renders the Helm chart, whose templates use only what this file supports, because neither npm nor Debian has Helm.
 */
import { createHash } from 'node:crypto'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Manifest } from './manifests.ts'
import { ROOT, textOf, yamlOf } from './sources.ts'

export const CHART = 'docs/deploy/helm'

const FUNCTIONS: Readonly<Record<string, (value: unknown, argument: unknown) => unknown>> = {
  default: (value, argument) => value || argument,
  nindent: (value, argument) => `\n${String(value).replace(/^/gm, ' '.repeat(Number(argument)))}`,
  sha256sum: (value) => createHash('sha256').update(String(value)).digest('hex'),
  toJson: (value) => JSON.stringify(value, Object.keys(value as object).sort()), // Go sorts the keys
  toYaml: (value) => Bun.YAML.stringify(value, null, 2),
}

/** Renders a release with `changed` values. */
export function renderChart(changed: Readonly<Record<string, unknown>> = {}): Manifest[] {
  const [chart] = yamlOf(`${CHART}/Chart.yaml`) as [{ appVersion: string }]
  const [values] = yamlOf(`${CHART}/values.yaml`) as [object]
  const scope = {
    Values: { ...values, ...changed },
    Release: { Name: 'sealpost', Namespace: 'sealpost' },
    Chart: { AppVersion: chart.appVersion },
  }
  const files = readdirSync(join(ROOT, CHART, 'templates'))
  return files.flatMap((name) => {
    const text = rendered(textOf(`${CHART}/templates/${name}`), scope)
    return text.trim() === '' ? [] : ([Bun.YAML.parse(text)].flat() as Manifest[])
  })
}

function rendered(template: string, scope: object): string {
  return template
    .replace(/\{\{- if (\S+) \}\}([\s\S]*?)\s*\{\{- end \}\}/g, (_, path, body) => (evaluated(path, scope) ? body : ''))
    .replace(/ *\{\{- (.+?) \}\}|\{\{ (.+?) \}\}/g, (_, trimming, plain) => String(evaluated(trimming ?? plain, scope)))
}

/** @throws Error if the pipeline is not supported or names no value */
function evaluated(pipeline: string, scope: object): unknown {
  return pipeline.split(' | ').reduce<unknown>((value, stage) => {
    const [name, argument] = stage.split(' ')
    if (name!.startsWith('.')) return valueAt(name!, scope)
    const known = FUNCTIONS[name!]
    if (!known) throw new Error(`unknown function: ${stage}`)
    const given = argument?.startsWith('.') ? valueAt(argument, scope) : argument
    return value === undefined ? known(given, undefined) : known(value, given)
  }, undefined)
}

function valueAt(path: string, scope: object): unknown {
  const names = path.slice(1).split('.')
  const value = names.reduce<unknown>((at, name) => (at as Record<string, unknown> | undefined)?.[name], scope)
  if (value === undefined) throw new Error(`no value: ${path}`)
  return value
}
