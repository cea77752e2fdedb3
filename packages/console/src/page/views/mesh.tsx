/** Shows a mesh, and the list of meshes. */
import type { GroupList, Invites, Me, MeshPage, MeshReport, PeerPage, PeerReport } from '@sealpost/operator'
import { useState } from 'preact/hooks'
import {
  type Api,
  age,
  count,
  deadCount,
  FlowIcon,
  instant,
  Key,
  MeshBadges,
  Num,
  named,
  Pager,
  plain,
  Shown,
  short,
  Table,
  toneOf,
  useAsked,
  useConfirm,
} from '../parts.tsx'
import { KeptView } from './storage.tsx'

interface MeshProps {
  readonly api: Api
  readonly meshId: string
  readonly me: Me
}

const TABS = ['Waiting', 'Peers', 'Groups', 'Invites', 'Kept'] as const

export function MeshView(props: MeshProps) {
  const { api, meshId } = props
  const [asked] = useAsked(`mesh ${meshId}`, () => api.get<MeshReport>(`/meshes/${meshId}`), 2000)
  const [tab, setTab] = useState<(typeof TABS)[number]>('Waiting')
  return (
    <Shown asked={asked}>
      {(mesh) => (
        <>
          <div class="row">
            <h1>{mesh.name || short(mesh.meshId)}</h1>
            <MeshBadges mesh={mesh} />
            <Key value={mesh.meshId} />
          </div>
          <section class={`verdict small ${toneOf(mesh)}`}>
            <FlowIcon flow={toneOf(mesh)} />
            <div>
              <p role="status">{mesh.why}</p>
              <p class="quiet">
                {count(mesh.members)}
                {mesh.membersAreMore ? ' or more' : ''} members · {count(mesh.sessions)} in session ·{' '}
                {count(mesh.depth)} waiting · {deadCount(mesh)} dead letters
              </p>
            </div>
          </section>
          <div class="tabs" role="tablist" aria-label="Sections of this mesh">
            {TABS.map((name) => (
              <button
                key={name}
                type="button"
                role="tab"
                id={`tab-${name}`}
                aria-selected={name === tab}
                aria-controls="tab"
                onClick={() => setTab(name)}
              >
                {name}
              </button>
            ))}
          </div>
          <div id="tab" role="tabpanel" aria-labelledby={`tab-${tab}`}>
            {tab === 'Waiting' && <Waiting {...props} />}
            {tab === 'Peers' && <Peers {...props} />}
            {tab === 'Groups' && <GroupsOf {...props} />}
            {tab === 'Invites' && <InvitesOf {...props} />}
            {tab === 'Kept' && <KeptView api={api} meshId={meshId} />}
          </div>
        </>
      )}
    </Shown>
  )
}

function Waiting(props: MeshProps) {
  const { api, meshId } = props
  const ask = () => api.get<PeerPage>(`/meshes/${meshId}/waiting`)
  const [asked, again] = useAsked(`waiting ${meshId}`, ask, 2000)
  return (
    <Shown asked={asked} isEmpty={({ peers }) => peers.length === 0} empty="No messages are waiting.">
      {({ peers }) => <PeerTable {...props} peers={peers} changed={again} />}
    </Shown>
  )
}

/** The most that the broker sends, so that few devices are on another page than their user. */
const PEERS_SHOWN = '200'

/** A peer, and whether its user is in the row above or further up. */
interface ListedPeer extends PeerReport {
  readonly isUnderUser?: boolean
}

/** Puts the devices and sessions on a page under their users. */
function underUsers(peers: readonly PeerReport[]): ListedPeer[] {
  const byUser = new Map<string, ListedPeer[]>(peers.map(({ peerKey }) => [peerKey, []]))
  const others = peers.filter((peer) => !byUser.get(peer.person ?? '')?.push({ ...peer, isUnderUser: true }))
  const byName = (a: ListedPeer, b: ListedPeer) => (a.name ?? '').localeCompare(b.name ?? '')
  return others.flatMap((peer) => [peer, ...byUser.get(peer.peerKey)!.sort(byName)])
}

function Peers(props: MeshProps) {
  const { api, meshId } = props
  const [pages, setPages] = useState<readonly string[]>([])
  const after = pages.at(-1)
  const ask = () => api.get<PeerPage>(`/meshes/${meshId}/peers`, { after, limit: PEERS_SHOWN })
  const [asked, again] = useAsked(`peers ${meshId} ${after}`, ask)
  return (
    <Shown asked={asked} isEmpty={({ peers }) => peers.length === 0} empty="This mesh has no members yet.">
      {({ peers, next }) => (
        <>
          <PeerTable {...props} peers={underUsers(peers)} changed={again} />
          <Pager pages={pages} turn={setPages} next={next} />
        </>
      )}
    </Shown>
  )
}

const PEER_HEAD = ['Name', 'Status', '# Waiting', '# Oldest', '# Unsettled', 'Accepts mail from', 'Key', '']

function PeerTable({
  api,
  meshId,
  me,
  peers,
  changed,
}: MeshProps & { peers: readonly ListedPeer[]; changed: () => void }) {
  const { ask, dialog } = useConfirm()
  const revoke = (peer: PeerReport) =>
    ask({
      title: `Revoke ${named(peer.name, peer.peerKey)}?`,
      text: 'This ends the membership of the peer and its devices permanently, and their sessions immediately. The key can never join again.',
      action: 'Revoke',
      act: () => api.post(`/meshes/${meshId}/peers/${peer.peerKey}/revoke`).then(changed),
    })
  return (
    <>
      <Table label="Peers" head={PEER_HEAD}>
        {peers.map((peer) => (
          <tr key={peer.peerKey} class={peer.isUnderUser ? 'under-user' : undefined}>
            <th scope="row">
              <bdi>{peer.isUnderUser ? labelOf(peer) : named(peer.name, peer.peerKey)}</bdi>{' '}
              <span class="quiet">{peer.kind === 'peer' ? roleOf(peer) : peer.kind}</span>
            </th>
            <td>
              <span class={`status ${peer.status}`}>{peer.status === 'dnd' ? 'do not disturb' : peer.status}</span>
              {peer.isCertified === false && peer.status !== 'revoked' && (
                <div class="why">unproven: no certificate names this key</div>
              )}
              {peer.reason && peer.reason !== 'away' && <div class="why">{plain(peer.reason)}</div>}
              {peer.status === 'away' && <LastSession of={peer} />}
            </td>
            <Num>{count(peer.depth)}</Num>
            <Num>{age(peer.oldestAgeMs)}</Num>
            <Num>{count(peer.unsettled)}</Num>
            <td>{consentOf(peer)}</td>
            <td>
              <Key value={peer.peerKey} />
            </td>
            <td class="end">
              {me.scope === 'operate' && peer.kind !== 'pool' && peer.status !== 'revoked' && (
                <button
                  type="button"
                  class="danger small"
                  onClick={() => revoke(peer)}
                  aria-label={`Revoke ${named(peer.name, peer.peerKey)}`}
                >
                  Revoke
                </button>
              )}
            </td>
          </tr>
        ))}
      </Table>
      {dialog}
    </>
  )
}

/** Shows an absent peer with its last shard. */
function LastSession({ of: { lastSeen } }: { of: PeerReport }) {
  if (!lastSeen) return <div class="quiet">never connected</div>
  return (
    <div class="quiet" title={`The last session started ${instant(lastSeen.sinceMs)}`}>
      last at {short(lastSeen.shard)}
    </div>
  )
}

/** Returns the last part of the name of a device. */
const labelOf = ({ name, peerKey }: PeerReport): string => named(name?.split('/').at(-1) ?? null, peerKey)

const roleOf = ({ role }: PeerReport): string => (role === 'admin' ? 'admin' : '')

function consentOf({ consent: { policy, allowed, blocked } }: PeerReport): string {
  const whom = policy === 'open' ? 'everybody' : `${count(allowed)} contacts`
  return blocked > 0 ? `${whom}, ${count(blocked)} blocked` : whom
}

function GroupsOf({ api, meshId }: MeshProps) {
  const [asked] = useAsked(`groups ${meshId}`, () => api.get<GroupList>(`/meshes/${meshId}/groups`))
  return (
    <Shown asked={asked} isEmpty={({ groups }) => groups.length === 0} empty="No groups and no pools.">
      {({ groups }) => (
        <Table label="Groups and pools" head={['Kind', 'Owner', '# Members', '# Epoch', 'Status', 'ID']}>
          {groups.map((group) => (
            <tr key={group.id}>
              <th scope="row">{group.kind}</th>
              <td>{named(group.ownerName, group.owner)}</td>
              <Num>{group.members === null ? '–' : count(group.members)}</Num>
              <Num>{group.isOver ? '–' : count(group.epoch)}</Num>
              <td>{group.isOver ? 'ended' : 'active'}</td>
              <td>
                <Key value={group.id} />
              </td>
            </tr>
          ))}
        </Table>
      )}
    </Shown>
  )
}

function InvitesOf({ api, meshId, me }: MeshProps) {
  const { ask, dialog } = useConfirm()
  const [asked, again] = useAsked(`invites ${meshId}`, () => api.get<Invites>(`/meshes/${meshId}/invites`))
  const revoke = (inviteId: string) =>
    ask({
      title: `Revoke the invite ${short(inviteId)}?`,
      text: 'Nobody can join with it afterwards. Members who joined with it stay.',
      action: 'Revoke',
      act: () => api.post(`/meshes/${meshId}/invites/${inviteId}/revoke`).then(again),
    })
  return (
    <>
      <Shown
        asked={asked}
        isEmpty={({ invites }) => invites.length === 0}
        empty="No invite has been used or revoked yet. The broker does not know unused invites."
      >
        {({ invites }) => (
          <Table label="Invites" head={['Issuer', 'Used', 'Until', 'Status', 'ID', '']}>
            {invites.map((invite) => (
              <tr key={invite.inviteId}>
                <th scope="row">{invite.issuer ? named(invite.issuerName, invite.issuer) : '–'}</th>
                <td>
                  {count(invite.uses)} of {invite.usesMax === null ? '?' : count(invite.usesMax)}
                </td>
                <td>{instant(invite.notAfterMs)}</td>
                <td>{invite.revokedAtMs === null ? 'valid' : 'revoked'}</td>
                <td>
                  <Key value={invite.inviteId} />
                </td>
                <td class="end">
                  {me.scope === 'operate' && invite.revokedAtMs === null && (
                    <button type="button" class="danger small" onClick={() => revoke(invite.inviteId)}>
                      Revoke
                    </button>
                  )}
                </td>
              </tr>
            ))}
          </Table>
        )}
      </Shown>
      {dialog}
    </>
  )
}

const HEAD = ['Mesh and message flow', '# Oldest', '# Waiting', '# Dead', '# Sessions', 'Since']

export function MeshesView({ api }: { api: Api }) {
  const [pages, setPages] = useState<readonly string[]>([])
  const after = pages.at(-1)
  const [asked] = useAsked(`meshes ${after}`, () => api.get<MeshPage>('/meshes', { after }), 3000)
  return (
    <>
      <h1>Meshes</h1>
      <Shown asked={asked} isEmpty={({ meshes }) => meshes.length === 0} empty="There are no meshes yet.">
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
