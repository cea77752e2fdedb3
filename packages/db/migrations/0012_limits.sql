ALTER TABLE "cluster" ADD COLUMN "origin" text;--> statement-breakpoint
CREATE INDEX "dead_letter_died" ON "dead_letter" USING btree ("mesh_id","died_at");--> statement-breakpoint
CREATE INDEX "delayed_delivery_recipient" ON "delayed_delivery" USING btree ("mesh_id","recipient");--> statement-breakpoint
-- Says which incarnation of the database this is. Another server than at the last look, or another timeline of it, is a
-- backup that was restored or a standby that took over: then it is a new one, and ids go on far behind those that may
-- have been given since the backup. The caller may say so itself, for a copy that shows neither. The owner's rights,
-- because nobody else needs to set a sequence.
CREATE FUNCTION note_origin(is_restored boolean) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_catalog, pg_temp AS $$
DECLARE
  here text := (SELECT system_identifier FROM pg_control_system()) || '/'
    || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8);
  before cluster%ROWTYPE;
  answer uuid;
BEGIN
  SELECT * INTO before FROM cluster FOR UPDATE;
  IF NOT is_restored AND before.origin IS NOT DISTINCT FROM here THEN RETURN before.incarnation; END IF;
  IF is_restored OR before.origin IS NOT NULL THEN
    PERFORM setval('delivery_block', nextval('delivery_block') + 1048576);
    PERFORM setval('receipt_id', nextval('receipt_id') + 68719476736);
    UPDATE cluster SET incarnation = gen_random_uuid();
  END IF;
  UPDATE cluster SET origin = here RETURNING incarnation INTO answer;
  RETURN answer;
END $$;
