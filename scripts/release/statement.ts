/**
 * Describes the files of a release: their checksums, and how they were built (an in-toto statement v1 with the SLSA
 * provenance v1 as predicate). The statement is not signed. docs/RELEASING.md describes who signs it.
 */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { pipeline } from 'node:stream/promises'

export interface Digested {
  readonly name: string
  /** In hex. */
  readonly sha256: string
}

export async function sha256Of(path: string): Promise<string> {
  const hash = createHash('sha256')
  await pipeline(createReadStream(path), hash)
  return hash.digest('hex')
}

/** Returns the text that `sha256sum --check` reads. */
export const checksumsOf = (files: readonly Digested[]): string =>
  files.map(({ name, sha256 }) => `${sha256}  ${name}\n`).join('')

export interface Build {
  readonly version: string
  readonly platforms: readonly string[]
  readonly commit: { readonly id: string; readonly isChanged: boolean }
  /** The URI of the repository, such as `git+https://…`. */
  readonly source?: string
  /** The URI of the machine or service that builds. */
  readonly builder: string
  readonly startedAt: Date
  readonly finishedAt: Date
  /** The files that users install. */
  readonly artefacts: readonly Digested[]
  /** The files that describe the release. */
  readonly byproducts: readonly Digested[]
  /** The files that determine the other materials, such as lock files, and the runtime. */
  readonly materials: readonly Digested[]
}

/** Describes `externalParameters` and the commands of the build. */
const BUILD_TYPE = 'urn:sealpost:release:1'

export function provenanceOf(build: Build) {
  const { id, isChanged } = build.commit
  const source = {
    name: 'source',
    ...(build.source !== undefined && { uri: build.source }),
    digest: { gitCommit: id },
    ...(isChanged && { annotations: { uncommittedChanges: true } }),
  }
  return {
    _type: 'https://in-toto.io/Statement/v1',
    subject: build.artefacts.map(resourceOf),
    predicateType: 'https://slsa.dev/provenance/v1',
    predicate: {
      buildDefinition: {
        buildType: BUILD_TYPE,
        externalParameters: { version: build.version, platforms: build.platforms },
        internalParameters: { bun: Bun.version },
        resolvedDependencies: [source, ...build.materials.map(resourceOf)],
      },
      runDetails: {
        builder: { id: build.builder },
        metadata: { startedOn: build.startedAt.toISOString(), finishedOn: build.finishedAt.toISOString() },
        byproducts: build.byproducts.map(resourceOf),
      },
    },
  }
}

const resourceOf = ({ name, sha256 }: Digested) => ({ name, digest: { sha256 } })
