/** Who belongs to a space: everybody in its mesh, or whoever the newest statement of its group names, with their devices. */
import { GROUP_EPOCH_LAST } from '@sealpost/std'

/** A member that nobody has revoked; the word of the person whose device it is has not run out. */
const isThere = (m: string) =>
  `${m}.revoked_at is null and not ${m}.is_pool and coalesce(${m}.vouched_until > clock_timestamp(), true)`

/** A statement says 32-byte keys, ids of 16 bytes and a signature: where the bytes of a key stand, that key is named. */
const isNamed = (key: string, g: string) => `position(${key} in ${g}.statement) > 0`

/** Also by the key of its person, or by one that it or its person had before. */
const isInGroup = (m: string, group: string) => `exists (
    select from peer_group g where g.mesh_id = ${m}.mesh_id and g.group_id = ${group} and g.epoch < ${GROUP_EPOCH_LAST}
      and (${isNamed(`${m}.peer_key`, 'g')}
        or exists (select from member p where p.mesh_id = ${m}.mesh_id and p.peer_no = ${m}.person and ${isNamed('p.peer_key', 'g')})
        or exists (select from former_identity f where f.mesh_id = ${m}.mesh_id
          and f.peer_no in (${m}.peer_no, coalesce(${m}.person, ${m}.peer_no)) and ${isNamed('f.peer_key', 'g')})))`

/** The member row `m` may open this space. */
export const isOfSpace = (m: string, space: string) =>
  `${isThere(m)} and (${space} = ${m}.mesh_id or ${isInGroup(m, space)})`

/** The member row `m` may say what this space is: an admin of the mesh, or the owner of the group. */
export const isOwnerOfSpace = (m: string, space: string) => `${isThere(m)} and case when ${space} = ${m}.mesh_id
    then ${m}.role = 'admin'
    else exists (select from peer_group g where g.mesh_id = ${m}.mesh_id and g.group_id = ${space} and g.owner = ${m}.peer_no
      and g.epoch < ${GROUP_EPOCH_LAST}) end`
