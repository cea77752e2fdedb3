CREATE TABLE "mesh_move" (
	"mesh_id" uuid PRIMARY KEY NOT NULL,
	"move_id" uuid NOT NULL,
	"side" text NOT NULL,
	"phase" text NOT NULL,
	"cell" text NOT NULL,
	"rows" bigint,
	"pause_ms" bigint
);
--> statement-breakpoint
ALTER TABLE "mesh" ADD COLUMN "frozen_at" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "mesh" ADD COLUMN "moved_to" text;
--> statement-breakpoint
-- While a mesh moves, nothing of it may change that somebody is told is done. The tables of messages see to that by their
-- statements, at no cost; these change seldom, so that a look at the mesh costs nobody anything. The look takes a lock that
-- the freeze waits for, and what comes behind the freeze waits for it: no change falls between them. The owner's rights,
-- because the lock needs more than a broker has.
CREATE FUNCTION refuse_while_moving() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_catalog, pg_temp AS $$
DECLARE
  place mesh%ROWTYPE;
BEGIN
  SELECT * INTO place FROM mesh WHERE mesh_id = coalesce(NEW.mesh_id, OLD.mesh_id) FOR SHARE;
  -- What is left behind is cleared away.
  IF place.frozen_at IS NULL OR (TG_OP = 'DELETE' AND place.moved_to IS NOT NULL) THEN RETURN coalesce(NEW, OLD); END IF;
  -- Nothing was done, and it may be later: as when a lock was not to be had.
  RAISE EXCEPTION 'this mesh is on its way to another cell, or lives there' USING ERRCODE = '55P03';
END $$;
--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "member" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "device" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "former_identity" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "former_binding" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "consent" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "peer_group" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "pool" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "invite" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "access_token" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
