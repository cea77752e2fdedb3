ALTER TABLE "snapshot" DROP CONSTRAINT "snapshot_mesh_id_space_id_seq_pk";--> statement-breakpoint
ALTER TABLE "snapshot" ALTER COLUMN "progress" SET DATA TYPE bigint USING 0;--> statement-breakpoint
ALTER TABLE "snapshot" ALTER COLUMN "progress" SET DEFAULT 0;--> statement-breakpoint
ALTER TABLE "snapshot" ALTER COLUMN "progress" SET NOT NULL;--> statement-breakpoint
ALTER TABLE "snapshot" ADD CONSTRAINT "snapshot_mesh_id_space_id_seq_at_pk" PRIMARY KEY("mesh_id","space_id","seq","at");--> statement-breakpoint
CREATE INDEX "state_entry_seq" ON "state_entry" USING btree ("mesh_id","space_id","seq");--> statement-breakpoint
ALTER TABLE "snapshot_entry" DROP CONSTRAINT "snapshot_entry_pk";
--> statement-breakpoint
ALTER TABLE "snapshot_entry" ADD CONSTRAINT "snapshot_entry_pk" PRIMARY KEY("mesh_id","space_id","snapshot_seq","snapshot_at","seq");--> statement-breakpoint
-- A day of UTC gets its partitions before it comes. They are made apart and then attached, which no writer waits for; a
-- reader of the default partition is waited for, and not for long. The owner's rights, because a broker makes no tables.
CREATE FUNCTION add_history_day(day date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_catalog, pg_temp SET lock_timeout = '500ms' SET timezone = 'UTC' AS $$
DECLARE
  parent text;
  child text;
BEGIN
  FOREACH parent IN ARRAY ARRAY['history_event', 'snapshot_entry'] LOOP
    child := parent || to_char(day, '_YYYYMMDD');
    CONTINUE WHEN to_regclass(child) IS NOT NULL;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING STORAGE)', child, parent);
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, child, day, day + 1);
  END LOOP;
END $$;
--> statement-breakpoint
-- Everybody waits while a partition goes, so it must go at once or not at all: whoever reads is let finish, and the caller
-- comes again. Only days that are over.
CREATE FUNCTION drop_history_day(day date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_catalog, pg_temp SET lock_timeout = '50ms' SET timezone = 'UTC' AS $$
DECLARE
  parent text;
BEGIN
  IF day >= current_date - 1 THEN RAISE EXCEPTION 'this day is not over' USING ERRCODE = '22023'; END IF;
  FOREACH parent IN ARRAY ARRAY['history_event', 'snapshot_entry'] LOOP
    EXECUTE format('DROP TABLE IF EXISTS %I', parent || to_char(day, '_YYYYMMDD'));
  END LOOP;
END $$;
--> statement-breakpoint
-- What came with a clock that had jumped, or with a mesh from another cell, lies in no partition of a day.
CREATE FUNCTION clear_undated_history(before timestamptz, most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_catalog, pg_temp AS $$
DECLARE
  events integer;
  entries integer;
BEGIN
  IF before >= clock_timestamp() - interval '1 day' THEN RAISE EXCEPTION 'this day is not over' USING ERRCODE = '22023'; END IF;
  DELETE FROM history_event_default WHERE ctid = ANY (ARRAY(SELECT ctid FROM history_event_default WHERE at < before LIMIT most));
  GET DIAGNOSTICS events = ROW_COUNT;
  DELETE FROM snapshot_entry_default WHERE ctid = ANY (ARRAY(SELECT ctid FROM snapshot_entry_default WHERE snapshot_at < before LIMIT most));
  GET DIAGNOSTICS entries = ROW_COUNT;
  RETURN events + entries;
END $$;
