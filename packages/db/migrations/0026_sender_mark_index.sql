ALTER TABLE "sender_mark" DROP CONSTRAINT "sender_mark_mesh_id_sender_pk";--> statement-breakpoint
CREATE INDEX "sender_mark_sender" ON "sender_mark" USING btree ("mesh_id","sender");