ALTER TABLE "cluster" ADD COLUMN "candidate" text;--> statement-breakpoint
ALTER TABLE "cluster" ADD COLUMN "candidate_since" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "cluster" ADD COLUMN "attested" uuid[];--> statement-breakpoint
-- The server and the timeline of its WAL; null on a standby. It has the owner's rights, because the number of the system
-- is not for everybody to read.
CREATE FUNCTION database_origin() RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN NOT pg_is_in_recovery() THEN (SELECT system_identifier FROM pg_control_system()) || '/'
    || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END
$$;--> statement-breakpoint
-- Ends the judging of an origin: `here` is the origin from now on, under the same incarnation or a new one. Either way ids
-- continue far behind all that may have been given, because a sequence may have gone back.
CREATE FUNCTION take_origin(here text, is_new boolean) RETURNS uuid
LANGUAGE plpgsql SET search_path = public, pg_catalog, pg_temp AS $$
DECLARE
  answer uuid;
BEGIN
  PERFORM setval('delivery_block', nextval('delivery_block') + 1048576);
  PERFORM setval('receipt_id', nextval('receipt_id') + 68719476736);
  UPDATE cluster SET origin = here, incarnation = CASE WHEN is_new THEN gen_random_uuid() ELSE incarnation END,
    candidate = NULL, candidate_since = NULL, attested = NULL
  RETURNING incarnation INTO answer;
  RETURN answer;
END $$;--> statement-breakpoint
-- Returns the incarnation of the database. Begins a new one on another server or timeline than the last look found, and
-- when the caller says that files were restored. Brokers call `attest_origin` instead, which can keep the incarnation.
CREATE OR REPLACE FUNCTION note_origin(is_restored boolean) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_catalog, pg_temp AS $$
DECLARE
  here text := database_origin();
  before cluster%ROWTYPE;
BEGIN
  SELECT * INTO before FROM cluster FOR UPDATE;
  IF is_restored OR before.origin <> here THEN RETURN take_origin(here, true); END IF;
  IF before.origin IS NULL THEN UPDATE cluster SET origin = here; END IF;
  RETURN before.incarnation;
END $$;--> statement-breakpoint
-- The verdict of the brokers on a server or timeline that the database was not on before (docs/adr/0010-failover.md).
-- `of_shard`: who attests · `former`: the incarnation it served · `is_whole`: whether it found all that it acknowledged;
-- null from a broker that has acknowledged nothing · `patience`: seconds to wait for the others. Answers `decided` with the
-- incarnation from now on, `waiting` until others have attested, or `standby`.
CREATE FUNCTION attest_origin(of_shard uuid, former uuid, is_whole boolean, patience double precision,
  OUT verdict text, OUT origin text, OUT incarnation uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_catalog, pg_temp AS $$
DECLARE
  known cluster%ROWTYPE;
  newest timestamptz;
  is_missing boolean;
BEGIN
  verdict := 'standby';
  origin := database_origin();
  IF origin IS NULL THEN RETURN; END IF;
  verdict := 'decided';
  SELECT * INTO known FROM cluster FOR UPDATE;
  IF known.origin IS NULL THEN UPDATE cluster c SET origin = attest_origin.origin; known.origin := origin; END IF;
  IF known.origin = origin THEN
    incarnation := known.incarnation;
    IF NOT is_whole AND former = known.incarnation THEN incarnation := take_origin(origin, true); END IF;
    RETURN;
  END IF;
  IF NOT is_whole OR former <> known.incarnation OR split_part(known.origin, '/', 1) <> split_part(origin, '/', 1) THEN
    incarnation := take_origin(origin, true);
    RETURN;
  END IF;
  IF known.candidate IS DISTINCT FROM origin THEN
    known.candidate_since := clock_timestamp();
    known.attested := '{}';
  END IF;
  IF is_whole THEN known.attested := known.attested || of_shard; END IF;
  -- A broker that had not renewed its lease for ten seconds when another one did had ended before.
  SELECT max(s.lease_until) INTO newest FROM shard s;
  SELECT count(*) > 0 INTO is_missing FROM shard s
    WHERE s.lease_until > newest - interval '10 seconds' AND s.shard_id <> ALL (known.attested);
  IF NOT is_missing AND cardinality(known.attested) > 0 THEN
    incarnation := take_origin(origin, false);
  ELSIF clock_timestamp() >= known.candidate_since + make_interval(secs => patience)
    OR cardinality(known.attested) = 0 AND coalesce(newest < clock_timestamp() - interval '1 minute', true) THEN
    incarnation := take_origin(origin, true);
  ELSE
    verdict := 'waiting';
    UPDATE cluster c SET candidate = attest_origin.origin, candidate_since = known.candidate_since, attested = known.attested;
  END IF;
END $$;
