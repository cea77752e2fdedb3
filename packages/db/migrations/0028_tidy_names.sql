-- Names are tidy from now on: no spaces at their ends, none doubled, none of / , * ( ), no hyphen at the beginning, no key in
-- hex. A name that is another one's after that gets the beginning of its key behind it. Devices are named PERSON/LABEL. A mesh that
-- is moving can't be changed; its names are tidied neither here nor by the move, and only shown otherwise.
with tidied as (
  select m.mesh_id, m.peer_no, m.name, m.peer_key,
    left(regexp_replace(btrim(regexp_replace(regexp_replace(m.name, '[/,*()]', '_', 'g'), ' +', ' ', 'g'), ' '), '^-', '_'), 55) as short,
    regexp_replace(btrim(regexp_replace(regexp_replace(m.name, '[/,*()]', '_', 'g'), ' +', ' ', 'g'), ' '), '^-', '_') as tidy
  from member m join mesh on mesh.mesh_id = m.mesh_id and mesh.frozen_at is null
  where m.person is null and not m.is_pool and m.name is not null
), changed as (
  select *, row_number() over (partition by mesh_id, lower(tidy) order by peer_no) as nth,
    exists (select from member o where o.mesh_id = t.mesh_id and o.peer_no <> t.peer_no and lower(o.name) = lower(t.tidy)) as is_taken
  from tidied t where tidy <> name or tidy ~* '^[0-9a-f]{64}$'
)
update member m set name = case
  when c.tidy = '' then null
  when c.is_taken or c.nth > 1 or c.tidy ~* '^[0-9a-f]{64}$' then btrim(c.short, ' ') || '-' || left(encode(c.peer_key, 'hex'), 8)
  else c.tidy end
from changed c where m.mesh_id = c.mesh_id and m.peer_no = c.peer_no;
