CREATE TABLE "prepared_send" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "prepared_send_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"mesh_id" uuid NOT NULL,
	"sender" "bytea" NOT NULL,
	"recipient" "bytea" NOT NULL,
	"priority" smallint NOT NULL,
	"envelope_id" uuid NOT NULL,
	"queued_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"due_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"attempts" integer DEFAULT 0 NOT NULL,
	"doubt_since" timestamp with time zone,
	"status" text DEFAULT 'queued' NOT NULL,
	"code" text,
	"decided_at" timestamp with time zone,
	"request" "bytea",
	CONSTRAINT "prepared_send_decided" CHECK (("prepared_send"."status" = 'queued') = ("prepared_send"."decided_at" is null))
);
--> statement-breakpoint
CREATE UNIQUE INDEX "prepared_send_envelope" ON "prepared_send" USING btree ("envelope_id","sender");--> statement-breakpoint
CREATE INDEX "prepared_send_queued" ON "prepared_send" USING btree ("id") WHERE "prepared_send"."status" = 'queued';--> statement-breakpoint
ALTER TABLE "prepared_send" ALTER COLUMN "request" SET STORAGE EXTERNAL;
--> statement-breakpoint
ALTER TABLE "prepared_send" SET (
  fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 20000
);
--> statement-breakpoint
-- The schema for applications. Only `sealpost_sender` may use it (packages/schema/src/roles.ts).
CREATE SCHEMA IF NOT EXISTS sealpost;
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
  -- Wakes the brokers when the transaction commits. Postgres sends one notification per transaction.
  IF FOUND THEN PERFORM pg_notify('sealpost_prepared', ''); END IF;
  RETURN envelope;
END $$;
--> statement-breakpoint
-- Returns what became of a prepared send: `queued`, `stored`, `refused` with a code, `in_doubt`, or `unknown`, for a request
-- that was not committed here or was decided more than a day ago.
CREATE OR REPLACE FUNCTION sealpost.sent_status(envelope_id uuid, OUT status text, OUT code text, OUT decided_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = public, pg_catalog, pg_temp AS $$
BEGIN
  SELECT p.status, p.code, p.decided_at INTO status, code, decided_at
    FROM prepared_send p WHERE p.envelope_id = sent_status.envelope_id ORDER BY p.status = 'refused', p.id LIMIT 1;
  IF NOT FOUND THEN status := 'unknown'; END IF;
END $$;
--> statement-breakpoint
-- Leases due rows to a broker, in the order of their ids. A row waits while an earlier one of its lane is leased or paused.
-- The lock makes the calls run one after another. Each statement of a function sees what the previous call has committed.
CREATE OR REPLACE FUNCTION public.take_prepared_sends(rows_max integer, lease interval)
RETURNS TABLE (id bigint, request bytea, attempts integer, doubt_seconds double precision, is_expired boolean)
LANGUAGE plpgsql VOLATILE SET search_path = public, pg_catalog, pg_temp AS $$
DECLARE
  at timestamptz;
BEGIN
  PERFORM pg_advisory_xact_lock(1587646555);
  at := clock_timestamp();
  RETURN QUERY
    WITH due AS MATERIALIZED (
      SELECT p.id, p.doubt_since FROM prepared_send p
      WHERE p.status = 'queued' AND p.due_at <= at AND NOT EXISTS (
        SELECT FROM prepared_send e WHERE e.status = 'queued' AND e.id < p.id AND e.due_at > at
          AND e.mesh_id = p.mesh_id AND e.sender = p.sender AND e.recipient = p.recipient AND e.priority = p.priority)
      ORDER BY p.id LIMIT rows_max
    )
    UPDATE prepared_send p
    SET due_at = at + lease, attempts = p.attempts + 1, doubt_since = coalesce(p.doubt_since, at)
    FROM due WHERE p.id = due.id AND p.status = 'queued'
    RETURNING p.id, p.request, p.attempts, extract(epoch FROM at - due.doubt_since)::double precision, p.expires_at <= at;
END $$;
--> statement-breakpoint
REVOKE ALL ON FUNCTION sealpost.send(bytea), sealpost.sent_status(uuid), public.take_prepared_sends(integer, interval) FROM PUBLIC;
