/** All meshes, a page at a time, those that need somebody first. */
import type { MeshPage } from '@sealpost/operator'
import { useState } from 'preact/hooks'
import type { Api } from '../api.ts'
import { useAsked } from '../asked.ts'
import { MeshBadges, Num, Pager, Shown, Table, toneOf } from '../parts.tsx'
import { age, count, deadCount, instant, short } from '../words.ts'

const HEAD = ['Mesh, and how its mail is', '# Oldest', '# Waiting', '# Dead', '# Sessions', 'Since']

export function MeshesView({ api }: { api: Api }) {
  const [pages, setPages] = useState<readonly string[]>([])
  const after = pages.at(-1)
  const [asked] = useAsked(`meshes ${after}`, () => api.get<MeshPage>('/meshes', { after }), 3000)
  return (
    <>
      <h1>Meshes</h1>
      <Shown asked={asked} isEmpty={({ meshes }) => meshes.length === 0} empty="There is no mesh yet.">
        {({ meshes, next }) => (
          <>
            <Table label="Meshes" head={HEAD}>
              {meshes.map((mesh) => (
                <tr key={mesh.meshId} class={toneOf(mesh)}>
                  <th scope="row" class="sentence">
                    <a href={`#/meshes/${mesh.meshId}`}>{mesh.name || short(mesh.meshId)}</a> <MeshBadges mesh={mesh} />
                    <div class="why">{mesh.why}</div>
                  </th>
                  <Num>{mesh.depth > 0 ? age(mesh.oldestAgeMs) : '–'}</Num>
                  <Num>{count(mesh.depth)}</Num>
                  <Num>{deadCount(mesh)}</Num>
                  <Num>{count(mesh.sessions)}</Num>
                  <td>{instant(mesh.createdAtMs)}</td>
                </tr>
              ))}
            </Table>
            <Pager pages={pages} turn={setPages} next={next} />
          </>
        )}
      </Shown>
    </>
  )
}
