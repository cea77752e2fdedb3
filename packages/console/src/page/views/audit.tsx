/** What operators changed. */
import type { Audit } from '@sealpost/operator'
import { useState } from 'preact/hooks'
import type { Api } from '../api.ts'
import { useAsked } from '../asked.ts'
import { Num, Pager, Shown, Table } from '../parts.tsx'
import { count, instant, plain, short } from '../words.ts'

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
