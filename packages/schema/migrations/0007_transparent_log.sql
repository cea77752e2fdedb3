CREATE TABLE "log_entry" (
	"mesh_id" uuid NOT NULL,
	"seq" bigint NOT NULL,
	"kind" smallint NOT NULL,
	"leaf" "bytea" NOT NULL,
	"statement" "bytea" NOT NULL,
	CONSTRAINT "log_entry_mesh_id_seq_pk" PRIMARY KEY("mesh_id","seq")
);
--> statement-breakpoint
CREATE TABLE "log_node" (
	"mesh_id" uuid NOT NULL,
	"position" bigint NOT NULL,
	"hash" "bytea" NOT NULL,
	CONSTRAINT "log_node_mesh_id_position_pk" PRIMARY KEY("mesh_id","position")
);
--> statement-breakpoint
CREATE TABLE "log_signer" (
	"mesh_id" uuid NOT NULL,
	"signer" "bytea" NOT NULL,
	"certificate" "bytea" NOT NULL,
	CONSTRAINT "log_signer_mesh_id_signer_pk" PRIMARY KEY("mesh_id","signer")
);
--> statement-breakpoint
CREATE TABLE "mesh_log" (
	"mesh_id" uuid PRIMARY KEY NOT NULL,
	"is_complete" boolean DEFAULT true NOT NULL
);
--> statement-breakpoint
ALTER TABLE "log_entry" ADD CONSTRAINT "log_entry_mesh_id_mesh_mesh_id_fk" FOREIGN KEY ("mesh_id") REFERENCES "public"."mesh"("mesh_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "log_node" ADD CONSTRAINT "log_node_mesh_id_mesh_mesh_id_fk" FOREIGN KEY ("mesh_id") REFERENCES "public"."mesh"("mesh_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "log_signer" ADD CONSTRAINT "log_signer_mesh_id_mesh_mesh_id_fk" FOREIGN KEY ("mesh_id") REFERENCES "public"."mesh"("mesh_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "mesh_log" ADD CONSTRAINT "mesh_log_mesh_id_mesh_mesh_id_fk" FOREIGN KEY ("mesh_id") REFERENCES "public"."mesh"("mesh_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "log_entry_leaf" ON "log_entry" USING btree ("mesh_id","leaf");--> statement-breakpoint
CREATE INDEX "mesh_log_incomplete" ON "mesh_log" USING btree ("mesh_id") WHERE not "mesh_log"."is_complete";
--> statement-breakpoint
-- Returns the hash of an entry as a leaf of the tree (RFC 6962).
CREATE FUNCTION log_leaf(kind integer, statement bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT sha256(set_byte('\x0000'::bytea, 1, kind) || statement) $$;
--> statement-breakpoint
-- Returns a key binding with its signature, as the log contains it.
CREATE FUNCTION key_binding_statement(mesh uuid, peer_key bytea, box_key bytea, box_epoch integer, not_after_ms bigint, signature bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT '\x0010'::bytea || uuid_send(mesh) || '\x0020'::bytea || peer_key || '\x0020'::bytea || box_key
    || int4send(box_epoch) || int8send(not_after_ms) || signature
$$;
--> statement-breakpoint
-- The statements that belong into the logs, as far as they are stored. The numbers are those of log-entry.ts. `place` orders the
-- statements of a kind whose order counts. A recovery that took effect is a former identity, too, and has one entry.
CREATE VIEW log_statement AS
  SELECT mesh_id AS mesh, 1 AS kind, 0::bigint AS place, key_binding_statement(mesh_id, peer_key, box_key, box_epoch, binding_not_after_ms, binding_signature) AS statement
    FROM member WHERE NOT is_pool
  UNION ALL SELECT f.mesh_id, 1, 0, key_binding_statement(f.mesh_id, coalesce(f.peer_key, m.peer_key), f.box_key, f.box_epoch, f.binding_not_after_ms, f.binding_signature)
    FROM former_binding f JOIN member m USING (mesh_id, peer_no)
  UNION ALL SELECT mesh_id, 2, 0, statement FROM device
  UNION ALL SELECT mesh_id, 3, 0, removal FROM device WHERE removal IS NOT NULL
  UNION ALL SELECT f.mesh_id, 4, 0, f.statement FROM former_identity f WHERE NOT EXISTS (
    SELECT FROM key_recovery r WHERE r.mesh_id = f.mesh_id AND r.former_key = f.peer_key AND r.statement = f.statement)
  UNION ALL SELECT mesh_id, 5, 0, statement FROM peer_group
  UNION ALL SELECT mesh_id, 6, 0, statement FROM pool
  UNION ALL SELECT mesh_id, CASE kind WHEN 'certificate' THEN 7 WHEN 'endorsement' THEN 8 ELSE 11 END, at_ms, statement FROM member_proof
  UNION ALL SELECT mesh_id, 9, number, statement FROM member_revocation
  UNION ALL SELECT mesh_id, 10, 0, root_key FROM mesh_root
  UNION ALL SELECT mesh_id, 12, epoch, statement FROM heir_statement
  UNION ALL SELECT mesh_id, 13, (1000 * extract(epoch FROM published_at))::bigint, statement FROM key_recovery;
--> statement-breakpoint
-- Appends an entry, unless the log has it, and the nodes of the subtrees that it completes. Takes the lock of the log.
CREATE FUNCTION log_append(mesh uuid, kind integer, statement bytea) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_catalog, pg_temp AS $$
DECLARE
  node bytea := log_leaf(kind, statement);
  start bigint;
  span bigint := 1;
BEGIN
  IF EXISTS (SELECT FROM log_entry e WHERE e.mesh_id = mesh AND e.leaf = node) THEN RETURN; END IF;
  INSERT INTO mesh_log (mesh_id) VALUES (mesh) ON CONFLICT DO NOTHING;
  PERFORM FROM mesh_log h WHERE h.mesh_id = mesh FOR UPDATE;
  -- Another transaction may have appended it while this one waited.
  IF EXISTS (SELECT FROM log_entry e WHERE e.mesh_id = mesh AND e.leaf = node) THEN RETURN; END IF;
  SELECT coalesce(max(e.seq) + 1, 0) INTO start FROM log_entry e WHERE e.mesh_id = mesh;
  INSERT INTO log_entry VALUES (mesh, start, kind, node, statement);
  INSERT INTO log_node VALUES (mesh, 2 * start, node);
  WHILE start / span % 2 = 1 LOOP
    start := start - span;
    SELECT sha256('\x01'::bytea || n.hash || node) INTO STRICT node FROM log_node n
      WHERE n.mesh_id = mesh AND n.position = 2 * start + span - 1;
    span := 2 * span;
    INSERT INTO log_node VALUES (mesh, 2 * start + span - 1, node);
  END LOOP;
END $$;
--> statement-breakpoint
-- Appends the statement of a row that was stored. Runs at the end of the transaction, so that the lock of the log is its last.
CREATE FUNCTION log_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_catalog, pg_temp AS $$
BEGIN
  -- The copy of a mesh contains its log, and is frozen at the end of its transaction.
  IF EXISTS (SELECT FROM mesh m WHERE m.mesh_id = NEW.mesh_id AND m.frozen_at IS NOT NULL) THEN RETURN NULL; END IF;
  CASE TG_TABLE_NAME
    WHEN 'member' THEN PERFORM log_append(NEW.mesh_id, 1, key_binding_statement(
      NEW.mesh_id, NEW.peer_key, NEW.box_key, NEW.box_epoch, NEW.binding_not_after_ms, NEW.binding_signature));
    WHEN 'device' THEN
      PERFORM log_append(NEW.mesh_id, 2, NEW.statement);
      IF NEW.removal IS NOT NULL THEN PERFORM log_append(NEW.mesh_id, 3, NEW.removal); END IF;
    WHEN 'former_identity' THEN
      IF NOT EXISTS (SELECT FROM key_recovery r WHERE r.mesh_id = NEW.mesh_id AND r.former_key = NEW.peer_key
          AND r.statement = NEW.statement) THEN
        PERFORM log_append(NEW.mesh_id, 4, NEW.statement);
      END IF;
    WHEN 'peer_group' THEN PERFORM log_append(NEW.mesh_id, 5, NEW.statement);
    WHEN 'pool' THEN PERFORM log_append(NEW.mesh_id, 6, NEW.statement);
    WHEN 'member_proof' THEN PERFORM log_append(NEW.mesh_id,
      CASE NEW.kind WHEN 'certificate' THEN 7 WHEN 'endorsement' THEN 8 ELSE 11 END, NEW.statement);
    WHEN 'member_revocation' THEN PERFORM log_append(NEW.mesh_id, 9, NEW.statement);
    WHEN 'mesh_root' THEN PERFORM log_append(NEW.mesh_id, 10, NEW.root_key);
    WHEN 'heir_statement' THEN PERFORM log_append(NEW.mesh_id, 12, NEW.statement);
    WHEN 'key_recovery' THEN PERFORM log_append(NEW.mesh_id, 13, NEW.statement);
  END CASE;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER log_change AFTER INSERT OR UPDATE OF peer_key, box_key, box_epoch, binding_not_after_ms, binding_signature
  ON "member" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NOT NEW.is_pool) EXECUTE FUNCTION log_change();
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER log_change AFTER INSERT OR UPDATE OF statement, removal
  ON "device" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION log_change();
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER log_change AFTER INSERT
  ON "former_identity" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION log_change();
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER log_change AFTER INSERT OR UPDATE OF statement
  ON "peer_group" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION log_change();
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER log_change AFTER INSERT OR UPDATE OF statement
  ON "pool" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION log_change();
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER log_change AFTER INSERT OR UPDATE OF statement
  ON "member_proof" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION log_change();
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER log_change AFTER INSERT
  ON "member_revocation" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION log_change();
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER log_change AFTER INSERT OR UPDATE OF root_key
  ON "mesh_root" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION log_change();
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER log_change AFTER INSERT OR UPDATE OF statement
  ON "heir_statement" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION log_change();
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER log_change AFTER INSERT OR UPDATE OF statement
  ON "key_recovery" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION log_change();
--> statement-breakpoint
-- After the triggers exist, so that a statement is either in its table by now or appended by a trigger.
INSERT INTO mesh_log (mesh_id, is_complete) SELECT m.mesh_id, false FROM mesh m WHERE m.moved_to IS NULL;
--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "mesh_log" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "log_entry" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "log_node" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "log_signer" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
--> statement-breakpoint
-- Marks a mesh that became active as incomplete, unless its log came with it: the mover of the previous version copies no log.
-- Runs at the end of the transaction, because a copy becomes active for as long as its rows are written.
CREATE FUNCTION log_arrival() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_catalog, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM mesh m WHERE m.mesh_id = NEW.mesh_id AND m.frozen_at IS NOT NULL) THEN RETURN NULL; END IF;
  INSERT INTO mesh_log (mesh_id, is_complete) VALUES (NEW.mesh_id, false) ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER log_arrival AFTER UPDATE OF frozen_at
  ON "mesh" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (OLD.frozen_at IS NOT NULL AND NEW.frozen_at IS NULL) EXECUTE FUNCTION log_arrival();
--> statement-breakpoint
-- Appends up to `batch` statements of one mesh whose log is incomplete. Returns false if there is no such mesh. One transaction
-- at a time; the others return true, and may try again later.
CREATE FUNCTION log_backfill(batch integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_catalog, pg_temp AS $$
DECLARE
  one uuid;
  found_one record;
  appended integer := 0;
BEGIN
  IF NOT pg_try_advisory_xact_lock(1587646553) THEN RETURN true; END IF;
  SELECT h.mesh_id INTO one FROM mesh_log h JOIN mesh m USING (mesh_id) WHERE NOT h.is_complete AND m.frozen_at IS NULL LIMIT 1;
  IF one IS NULL THEN RETURN false; END IF;
  FOR found_one IN SELECT s.kind, s.statement FROM log_statement s WHERE s.mesh = one AND NOT EXISTS (
    SELECT FROM log_entry e WHERE e.mesh_id = one AND e.leaf = log_leaf(s.kind, s.statement)) ORDER BY s.kind, s.place LIMIT batch
  LOOP
    PERFORM log_append(one, found_one.kind, found_one.statement);
    appended := appended + 1;
  END LOOP;
  IF appended < batch THEN UPDATE mesh_log h SET is_complete = true WHERE h.mesh_id = one; END IF;
  RETURN true;
END $$;
--> statement-breakpoint
REVOKE ALL ON FUNCTION log_append(uuid, integer, bytea), log_change(), log_arrival(), log_backfill(integer) FROM PUBLIC;
