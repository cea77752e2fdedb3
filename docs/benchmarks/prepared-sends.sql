-- A transaction that sends one message, for pgbench on the database of a broker: `pgbench -n -c 8 -j 2 -T 8 -f PATH URL`.
-- Postgres accepts the request. The broker then refuses its signature.
select sealpost.send(
  '\x01'::bytea || uuid_send((select mesh_id from mesh limit 1)) || sha256('shop') || sha256('warehouse')
  || uuid_send(gen_random_uuid()) || '\x01'::bytea || int4send(0) || int8send(0)
  || int8send(now_ms) || int8send(now_ms + 3600000) || int2send(0::smallint)
  || sha256('one') || sha256('two') || sha256('three') || sha256('four'))
from (select (extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms) as clock;
