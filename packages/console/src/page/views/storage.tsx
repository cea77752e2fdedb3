/** Shows the broker's storage except waiting mail. */
import type {
  Audit,
  DatabaseReport,
  DeadLetterReport,
  DeadLetters,
  Me,
  Purged,
  RedriveReport,
  SpaceReport,
  StorageReport,
} from '@sealpost/operator'
import { redriveRefusals } from '@sealpost/operator/texts'
import { useState } from 'preact/hooks'
import {
  type Api,
  age,
  bytes,
  count,
  Empty,
  instant,
  Key,
  Num,
  named,
  Pager,
  Problem,
  plain,
  Shown,
  short,
  Table,
  Tile,
  useAsked,
  useConfirm,
} from '../parts.tsx'

const REASONS = ['', 'strikes', 'expired', 'rejected'] as const

export function DeadLettersView({ api, me }: { api: Api; me: Me }) {
  const [reason, setReason] = useState('')
  const [refused, setRefused] = useState<Refused>([])
  const [asked, again] = useAsked(`dead ${reason}`, () => api.get<DeadLetters>('/dead-letters', { reason, limit: 200 }))
  return (
    <>
      <div class="row">
        <h1>Dead letters</h1>
        <label class="inline">
          <span class="unseen">Reason</span>
          <select value={reason} onChange={({ currentTarget }) => setReason(currentTarget.value)}>
            {REASONS.map((name) => (
              <option key={name} value={name}>
                {name || 'all reasons'}
              </option>
            ))}
          </select>
        </label>
      </div>
      <NotRedriven refused={refused} />
      <Shown asked={asked} isEmpty={({ deadLetters }) => deadLetters.length === 0} empty="No dead letters.">
        {({ deadLetters }) => (
          <Letters
            key={reason}
            {...{ api, me, letters: deadLetters }}
            changed={(answer) => {
              setRefused(answer)
              again()
            }}
          />
        )}
      </Shown>
    </>
  )
}

type Refused = RedriveReport['refused']

function NotRedriven({ refused }: { refused: Refused }) {
  if (refused.length === 0) return null
  return (
    <div class="problem" role="alert">
      {count(refused.length)} not redriven:
      <ul>
        {refused.map(({ id, reason }) => (
          <li key={id}>
            {id}: {redriveRefusals[reason]}
          </li>
        ))}
      </ul>
    </div>
  )
}

interface LettersProps {
  readonly api: Api
  readonly me: Me
  readonly letters: readonly DeadLetterReport[]
  /** Called after a change, with the refused dead letters. */
  readonly changed: (refused: Refused) => void
}

function Letters({ api, me, letters, changed }: LettersProps) {
  const { ask, dialog } = useConfirm()
  const [chosen, setChosen] = useState<ReadonlySet<number>>(new Set())
  const mayOperate = me.scope === 'operate'
  const there = letters.filter(({ id }) => chosen.has(id)).map(({ id }) => id)
  const toggle = (id: number) => {
    const next = new Set(chosen)
    if (!next.delete(id)) next.add(id)
    setChosen(next)
  }
  const done = (answer: RedriveReport | Purged) => {
    setChosen(new Set())
    changed('refused' in answer ? answer.refused : [])
  }
  const change = (what: Change) =>
    ask({
      title: `${WORDS[what]} ${count(there.length)}?`,
      text:
        what === 'redrive'
          ? 'They return to the end of their queues for 14 days, with their failed attempts reset. Dead letters that can’t be redriven stay and are listed with the reason.'
          : 'This deletes them permanently.',
      action: WORDS[what],
      act: () => api.post<RedriveReport | Purged>(`/dead-letters/${what}`, { ids: there }).then(done),
    })
  return (
    <>
      {mayOperate && <Changes chosen={there} all={letters.map(({ id }) => id)} choose={setChosen} change={change} />}
      <Table
        label="Dead letters"
        head={[...(mayOperate ? ['Select'] : []), 'Reason', 'From', 'To', 'Mesh', '# Attempts', '# Size', 'Died']}
      >
        {letters.map((letter) => (
          <tr key={`${letter.meshId}/${letter.recipient}/${letter.id}`}>
            {mayOperate && (
              <td>
                <input
                  type="checkbox"
                  aria-label={`Select ${letter.id}`}
                  checked={chosen.has(letter.id)}
                  onChange={() => toggle(letter.id)}
                />
              </td>
            )}
            <LetterCells letter={letter} />
          </tr>
        ))}
      </Table>
      {dialog}
    </>
  )
}

type Change = 'redrive' | 'purge'
const WORDS: Readonly<Record<Change, string>> = { redrive: 'Redrive', purge: 'Purge' }

interface ChangesProps {
  readonly chosen: readonly number[]
  readonly all: readonly number[]
  readonly choose: (ids: ReadonlySet<number>) => void
  readonly change: (what: Change) => void
}

function Changes({ chosen, all, choose, change }: ChangesProps) {
  const isAll = chosen.length === all.length
  const isNone = chosen.length === 0
  return (
    <div class="row">
      <button type="button" class="plain" onClick={() => choose(new Set(isAll ? [] : all))}>
        {isAll ? 'Select none' : 'Select all shown'}
      </button>
      <button type="button" disabled={isNone} onClick={() => change('redrive')}>
        {WORDS.redrive}
      </button>
      <button type="button" class="danger" disabled={isNone} onClick={() => change('purge')}>
        {WORDS.purge}
      </button>
      <span class="quiet" role="status">
        {count(chosen.length)} of {count(all.length)} selected
      </span>
    </div>
  )
}

function LetterCells({ letter }: { letter: DeadLetterReport }) {
  return (
    <>
      <th scope="row">
        {letter.reason}
        {letter.detail && <span class="quiet sentence"> {letter.detail}</span>}
      </th>
      <td>{named(letter.senderName, letter.sender)}</td>
      <td>{named(letter.recipientName, letter.recipient)}</td>
      <td>
        <a href={`#/meshes/${letter.meshId}`}>{letter.meshName || short(letter.meshId)}</a>
      </td>
      <Num>{count(letter.attempts)}</Num>
      <Num>{bytes(letter.bytes)}</Num>
      <td>{instant(letter.diedAtMs)}</td>
    </>
  )
}

/** The columns of a mesh's storage: sizes and ages, never contents. */
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
              hint={`${count(spaces.filter(({ keptSinceMs }) => keptSinceMs !== null).length)} of ${count(spaces.length)} spaces keep history`}
            />
            <Tile label="Files" value={count(files)} hint={`${count(unfinished)} incomplete`} />
            <Tile label="Size of files" value={bytes(size)} hint="as sealed" />
          </dl>
          {spaces.length === 0 ? (
            <Empty>This mesh has no state and no history.</Empty>
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
      <th scope="row">{space.kind === 'mesh' ? 'mesh' : 'group'}</th>
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
                hint={`${count(database.ownConnections)} by Sealpost`}
              />
              <Tile label="Waiting statements" value={count(database.statementsWaiting)} />
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

/** Shows a table's number of partitions. */
function Partitions({ of: { partitions } }: { of: DatabaseReport['tables'][number] }) {
  if (partitions === 0) return null
  return <span class="quiet">{partitions === 1 ? '1 partition' : `${count(partitions)} partitions`}</span>
}

function Snapshots({ snapshots }: Pick<DatabaseReport, 'snapshots'>) {
  if (snapshots.length === 0) return null
  return (
    <>
      <h2>Processes that hold a snapshot</h2>
      <Table label="Snapshots" head={['Program', 'State', '# Seconds', '# Process']}>
        {snapshots.map(({ pid, application, state, seconds }) => (
          <tr key={pid}>
            <th scope="row">{application || 'no name'}</th>
            <td>{state}</td>
            <Num>{count(seconds)}</Num>
            <Num>{pid}</Num>
          </tr>
        ))}
      </Table>
    </>
  )
}

const AUDIT_PAGE = 100

export function AuditView({ api }: { api: Api }) {
  const [pages, setPages] = useState<readonly string[]>([])
  const before = pages.at(-1)
  const [asked] = useAsked(`audit ${before}`, () => api.get<Audit>('/audit', { before, limit: AUDIT_PAGE }))
  return (
    <>
      <h1>Audit</h1>
      <Shown asked={asked} isEmpty={({ entries }) => entries.length === 0} empty="There are no changes yet.">
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
            <Pager
              pages={pages}
              turn={setPages}
              next={entries.length === AUDIT_PAGE ? String(entries.at(-1)!.id) : null}
            />
          </>
        )}
      </Shown>
    </>
  )
}

const subjectOf = (subject: string | null): string =>
  subject === null ? '–' : /^[0-9a-f]{32,}$/.test(subject) ? short(subject) : subject
