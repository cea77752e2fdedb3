ALTER TABLE "cluster" ADD COLUMN "prepared_polled_until" timestamp with time zone;
--> statement-breakpoint
-- Wakes the brokers when the transaction commits, unless one of them looks by itself for at least another second. Postgres
-- commits transactions that notify one after another. Deferred, because a transaction may commit long after its insert.
CREATE FUNCTION public.wake_for_prepared_sends() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_catalog, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM cluster c WHERE c.prepared_polled_until > clock_timestamp() + interval '1 second') THEN
    PERFORM pg_notify('sealpost_prepared', '');
  END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER wake_for_prepared_sends AFTER INSERT ON prepared_send
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wake_for_prepared_sends();
--> statement-breakpoint
-- Stores a prepared send in the caller's transaction, and returns its envelope id. A repeated request has no effect.
-- Checks what Postgres can check; a broker verifies the signature after the commit. The layout is that of
-- packages/identity/src/envelope/prepared-send.ts. SECURITY DEFINER, because the caller has no rights on the table.
CREATE OR REPLACE FUNCTION sealpost.send(request bytea) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = public, pg_catalog, pg_temp AS $$
DECLARE
  size constant integer := octet_length(request);
  now_ms constant bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
  mesh uuid;
  envelope uuid;
  prepared_ms bigint;
  expires_ms bigint;
BEGIN
  IF size > 131584 THEN
    RAISE EXCEPTION 'request_too_large: a prepared send can have at most 131584 bytes' USING ERRCODE = 'SP413';
  END IF;
  IF request IS NULL OR size < 232 OR get_byte(request, 0) <> 1 OR get_byte(request, 97) > 2
    OR size < 232 + get_byte(request, 126) * 256 + get_byte(request, 127) THEN
    RAISE EXCEPTION 'request_malformed: this is not a prepared send' USING ERRCODE = 'SP400',
      HINT = 'Pass the bytes that prepareSend() of @sealpost/sdk/prepare or `sealpost prepare` returned.';
  END IF;
  mesh := encode(substring(request FROM 2 FOR 16), 'hex')::uuid;
  envelope := encode(substring(request FROM 82 FOR 16), 'hex')::uuid;
  prepared_ms := ('x' || encode(substring(request FROM 111 FOR 8), 'hex'))::bit(64)::bigint;
  expires_ms := ('x' || encode(substring(request FROM 119 FOR 8), 'hex'))::bit(64)::bigint;
  IF prepared_ms < 0 OR expires_ms <= prepared_ms OR expires_ms - prepared_ms > 86400000 THEN
    RAISE EXCEPTION 'request_malformed: a prepared send is valid for at most 24 hours' USING ERRCODE = 'SP400';
  END IF;
  IF prepared_ms > now_ms + 300000 THEN
    RAISE EXCEPTION 'clock_ahead: this request was prepared by a clock that is more than five minutes ahead of the database' USING ERRCODE = 'SP425';
  END IF;
  IF expires_ms <= now_ms THEN
    RAISE EXCEPTION 'request_expired: this request has expired: prepare the message again' USING ERRCODE = 'SP408';
  END IF;
  IF NOT EXISTS (SELECT FROM mesh m WHERE m.mesh_id = mesh AND m.moved_to IS NULL) THEN
    RAISE EXCEPTION 'unknown_mesh: the mesh of this request is not in this database' USING ERRCODE = 'SP404';
  END IF;
  -- Counts only if the table is large, because a count would make serializable transactions conflict.
  IF pg_table_size('prepared_send') > 67108864
    AND (SELECT count(*) FROM (SELECT FROM prepared_send p WHERE p.status = 'queued' LIMIT 10000) q) = 10000 THEN
    RAISE EXCEPTION 'outbox_full: 10000 prepared sends are waiting for a broker' USING ERRCODE = 'SP429';
  END IF;
  INSERT INTO prepared_send (mesh_id, sender, recipient, priority, envelope_id, expires_at, request)
    VALUES (mesh, substring(request FROM 18 FOR 32), substring(request FROM 50 FOR 32), get_byte(request, 97), envelope,
      to_timestamp(expires_ms / 1000.0), request)
    ON CONFLICT DO NOTHING;
  RETURN envelope;
END $$;
--> statement-breakpoint
REVOKE ALL ON FUNCTION public.wake_for_prepared_sends() FROM PUBLIC;
