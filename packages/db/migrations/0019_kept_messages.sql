ALTER TABLE "history_event" ADD COLUMN "body_id" "bytea";--> statement-breakpoint
ALTER TABLE "state_entry" ADD COLUMN "hash" "bytea" NOT NULL;--> statement-breakpoint
CREATE INDEX "history_event_body" ON "history_event" USING btree ("mesh_id","space_id","body_id") WHERE "history_event"."body_id" is not null;
