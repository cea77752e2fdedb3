/** Validates manifests against the schemas of the Kubernetes API. */
import { StatefulSet } from 'kubernetes-models/apps/v1'
import { Ingress, NetworkPolicy } from 'kubernetes-models/networking.k8s.io/v1'
import { PodDisruptionBudget } from 'kubernetes-models/policy/v1'
import { ConfigMap, Namespace, Service } from 'kubernetes-models/v1'

export interface Manifest {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: { readonly name: string }
  readonly spec?: unknown
}

const MODELS = [ConfigMap, Ingress, Namespace, NetworkPolicy, PodDisruptionBudget, Service, StatefulSet]

/** Returns the error in a manifest, if there is one. */
export function faultOfManifest(manifest: Manifest): string | null {
  const Model = MODELS.find(({ apiVersion, kind }) => apiVersion === manifest.apiVersion && kind === manifest.kind)
  if (!Model) return `there is no ${manifest.kind} in ${manifest.apiVersion}, or nobody has looked yet`
  const read = new Set<string>()
  const model = Object.assign(new Model(), watched(manifest, '', read))
  try {
    model.validate()
  } catch (error) {
    return (error as Error).message
  }
  const unknown = keysOf(manifest, '').filter((path) => !read.has(path))
  return unknown.length === 0 ? null : `unknown: ${unknown.join(', ')}`
}

/** Records the fields that are read. The schemas never read unknown ones. */
function watched(value: unknown, path: string, read: Set<string>): unknown {
  if (value === null || typeof value !== 'object') return value
  return new Proxy(value, {
    get(target, key) {
      const child = Reflect.get(target, key)
      if (typeof key === 'symbol' || !Object.hasOwn(target, key)) return child
      read.add(`${path}/${key}`)
      return watched(child, `${path}/${key}`, read)
    },
  })
}

function keysOf(value: unknown, path: string): string[] {
  if (value === null || typeof value !== 'object') return []
  return Object.entries(value).flatMap(([key, child]) => [`${path}/${key}`, ...keysOf(child, `${path}/${key}`)])
}
