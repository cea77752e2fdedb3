-- A state leaves out what a later event took the place of: it finds that in the key, and need not read the events themselves first.
ALTER TABLE "history_event" DROP CONSTRAINT "history_event_mesh_id_space_id_seq_at_pk";--> statement-breakpoint
ALTER TABLE "history_event" ADD CONSTRAINT "history_event_mesh_id_space_id_seq_at_pk" PRIMARY KEY ("mesh_id","space_id","seq","at") INCLUDE ("former_seq");
