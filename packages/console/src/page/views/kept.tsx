/** What is kept of a mesh beside its mail: sizes and ages, never contents. */
import type { SpaceReport, StorageReport } from '@sealpost/operator'
import type { Api } from '../api.ts'
import { useAsked } from '../asked.ts'
import { Empty, Key, Num, Shown, Table, Tile } from '../parts.tsx'
import { age, bytes, count, instant, named } from '../words.ts'

const HEAD = ['Space', 'Owner', '# Values', '# Size', '# History', 'Kept since', '# Days', '# Snapshot age', 'ID']

export function KeptView({ api, meshId }: { api: Api; meshId: string }) {
  const [asked] = useAsked(`kept ${meshId}`, () => api.get<StorageReport>(`/meshes/${meshId}/kept`))
  return (
    <Shown asked={asked}>
      {({ spaces, attachments: { files, bytes: size, unfinished } }) => (
        <div class="stack">
          <dl class="tiles">
            <Tile
              label="Values"
              value={count(sum(spaces, ({ entries }) => entries))}
              hint={bytes(sum(spaces, ({ entryBytes }) => entryBytes))}
            />
            <Tile
              label="History"
              value={bytes(sum(spaces, ({ historyBytes }) => historyBytes))}
              hint={`${count(spaces.filter(({ keptSinceMs }) => keptSinceMs !== null).length)} of ${count(spaces.length)} spaces keep it`}
            />
            <Tile label="Files" value={count(files)} hint={`${count(unfinished)} not complete`} />
            <Tile label="Their size" value={bytes(size)} hint="as sealed" />
          </dl>
          {spaces.length === 0 ? (
            <Empty>This mesh keeps no state and no history.</Empty>
          ) : (
            <Table label="State and history" head={HEAD}>
              {spaces.map((space) => (
                <SpaceRow key={space.spaceId} space={space} />
              ))}
            </Table>
          )}
        </div>
      )}
    </Shown>
  )
}

function SpaceRow({ space }: { space: SpaceReport }) {
  const isKept = space.keptSinceMs !== null
  return (
    <tr>
      <th scope="row">{space.kind === 'mesh' ? 'of the mesh' : 'of a group'}</th>
      <td>{named(space.ownerName, space.owner)}</td>
      <Num>{count(space.entries)}</Num>
      <Num>{bytes(space.entryBytes)}</Num>
      <Num>{isKept ? `${bytes(space.historyBytes)} of ${bytes(space.historyBytesMax)}` : 'none'}</Num>
      <td>{instant(space.keptSinceMs)}</td>
      <Num>{isKept ? count(space.days) : '–'}</Num>
      <Num>{age(space.snapshot?.ageMs ?? null)}</Num>
      <td>
        <Key value={space.spaceId} />
      </td>
    </tr>
  )
}

const sum = (spaces: readonly SpaceReport[], of: (space: SpaceReport) => number): number =>
  spaces.reduce((total, space) => total + of(space), 0)
