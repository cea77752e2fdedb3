/** What the database server says of itself. */
import type { Audit, DatabaseReport } from '@sealpost/operator'
import { useState } from 'preact/hooks'
import { type Api, bytes, count, instant, plain, short, useAsked } from '../api.ts'
import { Num, Pager, Problem, Shown, Table, Tile } from '../parts.tsx'

export function DatabaseView({ api }: { api: Api }) {
  const [asked] = useAsked('database', () => api.get<DatabaseReport>('/database'))
  return (
    <>
      <h1>Database</h1>
      <Shown asked={asked}>
        {(database) => (
          <>
            {database.warnings.map(({ code, sentence }) => (
              <Problem key={code}>{sentence}</Problem>
            ))}
            <dl class="tiles">
              <Tile label="Size" value={bytes(database.bytes)} hint={`Postgres ${database.version}`} />
              <Tile
                label="Write-ahead log"
                value={database.walBytesPerSecond === null ? '–' : `${bytes(database.walBytesPerSecond)}/s`}
              />
              <Tile
                label="Connections"
                value={`${count(database.connections)} of ${count(database.connectionsMax)}`}
                hint={`${count(database.ownConnections)} of ours`}
              />
              <Tile label="Statements that wait" value={count(database.statementsWaiting)} />
            </dl>
            <Snapshots snapshots={database.snapshots} />
            <h2>Tables</h2>
            <Table label="Tables" head={['Table', '# Rows', '# Dead rows', '# Size', 'Vacuumed']}>
              {database.tables.map((table) => (
                <tr key={table.name}>
                  <th scope="row">
                    {table.name} <Partitions of={table} />
                  </th>
                  <Num>{count(table.rows)}</Num>
                  <Num>{count(table.deadRows)}</Num>
                  <Num>{bytes(table.bytes)}</Num>
                  <td>{instant(table.vacuumedAtMs)}</td>
                </tr>
              ))}
            </Table>
          </>
        )}
      </Shown>
    </>
  )
}

/** Of one that has any it is told how many: for history, a day each. */
function Partitions({ of: { partitions } }: { of: DatabaseReport['tables'][number] }) {
  if (partitions === 0) return null
  return <span class="quiet">{partitions === 1 ? '1 partition' : `${count(partitions)} partitions`}</span>
}

function Snapshots({ snapshots }: Pick<DatabaseReport, 'snapshots'>) {
  if (snapshots.length === 0) return null
  return (
    <>
      <h2>Who holds a snapshot</h2>
      <Table label="Snapshots" head={['Program', 'State', '# Seconds', '# Process']}>
        {snapshots.map(({ pid, application, state, seconds }) => (
          <tr key={pid}>
            <th scope="row">{application || 'without a name'}</th>
            <td>{state}</td>
            <Num>{count(seconds)}</Num>
            <Num>{pid}</Num>
          </tr>
        ))}
      </Table>
    </>
  )
}

/** What operators changed. */
const PAGE = 100

export function AuditView({ api }: { api: Api }) {
  const [pages, setPages] = useState<readonly string[]>([])
  const before = pages.at(-1)
  const [asked] = useAsked(`audit ${before}`, () => api.get<Audit>('/audit', { before, limit: PAGE }))
  return (
    <>
      <h1>Audit</h1>
      <Shown asked={asked} isEmpty={({ entries }) => entries.length === 0} empty="Nobody changed anything yet.">
        {({ entries }) => (
          <>
            <Table label="Audit" head={['When', 'Who', 'What', 'Subject', '# Count', 'Mesh']}>
              {entries.map((entry) => (
                <tr key={entry.id}>
                  <th scope="row">{instant(entry.atMs)}</th>
                  <td>{entry.actor}</td>
                  <td>{plain(entry.action)}</td>
                  <td class="sentence">{subjectOf(entry.subject)}</td>
                  <Num>{count(entry.count)}</Num>
                  <td>{entry.meshId ? <a href={`#/meshes/${entry.meshId}`}>{short(entry.meshId)}</a> : '–'}</td>
                </tr>
              ))}
            </Table>
            <Pager pages={pages} turn={setPages} next={entries.length === PAGE ? String(entries.at(-1)!.id) : null} />
          </>
        )}
      </Shown>
    </>
  )
}

/** A key or an id is cut short. */
const subjectOf = (subject: string | null): string =>
  subject === null ? '–' : /^[0-9a-f]{32,}$/.test(subject) ? short(subject) : subject
