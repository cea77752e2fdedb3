/** The brokers on this database. */
import type { Shards } from '@sealpost/operator'
import type { Api } from '../api.ts'
import { useAsked } from '../asked.ts'
import { Key, Num, Shown, Table } from '../parts.tsx'
import { count } from '../words.ts'

export function ShardsView({ api }: { api: Api }) {
  const [asked] = useAsked('shards', () => api.get<Shards>('/shards'), 3000)
  return (
    <>
      <h1>Shards</h1>
      <Shown asked={asked} isEmpty={({ shards }) => shards.length === 0} empty="No broker is listed.">
        {({ shards }) => (
          <Table label="Shards" head={['Name', 'Is', 'Dialled at', '# Epoch', '# Lease', 'Shard', 'Key']}>
            {shards.map((shard) => (
              <tr key={shard.name}>
                <th scope="row">
                  {shard.name} {shard.isSelf && <span class="quiet">this one</span>}
                </th>
                <td>
                  <span class={`status ${shard.isAlive ? 'idle' : 'revoked'}`}>{shard.isAlive ? 'alive' : 'gone'}</span>
                </td>
                <td>{shard.url ?? 'no mesh has its home there'}</td>
                <Num>{count(shard.epoch)}</Num>
                <Num>{shard.isAlive ? `${(shard.leaseMs / 1000).toFixed(1)} s` : '–'}</Num>
                <td>
                  <Key value={shard.shardId} />
                </td>
                <td>
                  <Key value={shard.brokerKey} />
                </td>
              </tr>
            ))}
          </Table>
        )}
      </Shown>
    </>
  )
}
