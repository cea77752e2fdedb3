CREATE TABLE "one_time_prekey" (
	"mesh_id" uuid NOT NULL,
	"peer_no" integer NOT NULL,
	"key_id" bigint NOT NULL,
	"public_key" "bytea" NOT NULL,
	"claimer" integer,
	"claimed_at" timestamp with time zone,
	CONSTRAINT "one_time_prekey_mesh_id_peer_no_key_id_pk" PRIMARY KEY("mesh_id","peer_no","key_id"),
	CONSTRAINT "one_time_prekey_claimed" CHECK (("one_time_prekey"."claimed_at" is null) = ("one_time_prekey"."claimer" is null))
);
--> statement-breakpoint
CREATE TABLE "prekey_statement" (
	"mesh_id" uuid NOT NULL,
	"peer_no" integer NOT NULL,
	"statement" "bytea" NOT NULL,
	"issued_at_ms" bigint NOT NULL,
	"last_resorts" integer DEFAULT 0 NOT NULL,
	CONSTRAINT "prekey_statement_mesh_id_peer_no_pk" PRIMARY KEY("mesh_id","peer_no")
);
--> statement-breakpoint
ALTER TABLE "one_time_prekey" ADD CONSTRAINT "one_time_prekey_mesh_id_peer_no_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","peer_no") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "prekey_statement" ADD CONSTRAINT "prekey_statement_mesh_id_peer_no_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","peer_no") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "one_time_prekey_unclaimed" ON "one_time_prekey" USING btree ("mesh_id","peer_no") WHERE "one_time_prekey"."claimed_at" is null;--> statement-breakpoint
CREATE INDEX "one_time_prekey_claimer" ON "one_time_prekey" USING btree ("mesh_id","claimer","claimed_at") WHERE "one_time_prekey"."claimed_at" is not null;--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "prekey_statement" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "one_time_prekey" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
--> statement-breakpoint
-- Deletes the prekeys of a revoked member, and of a key that was rotated. SECURITY DEFINER, because an admin can't change prekeys.
CREATE FUNCTION drop_prekeys() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_catalog, pg_temp AS $$
BEGIN
  DELETE FROM one_time_prekey p WHERE p.mesh_id = NEW.mesh_id AND p.peer_no = NEW.peer_no;
  DELETE FROM prekey_statement s WHERE s.mesh_id = NEW.mesh_id AND s.peer_no = NEW.peer_no;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER drop_prekeys AFTER UPDATE OF revoked_at, peer_key ON "member" FOR EACH ROW
  WHEN (NEW.revoked_at IS NOT NULL OR NEW.peer_key IS DISTINCT FROM OLD.peer_key) EXECUTE FUNCTION drop_prekeys();
--> statement-breakpoint
REVOKE ALL ON FUNCTION drop_prekeys() FROM PUBLIC;
