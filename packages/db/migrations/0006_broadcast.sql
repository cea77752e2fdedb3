CREATE TABLE "shared_body" (
	"mesh_id" uuid NOT NULL,
	"sender" integer NOT NULL,
	"body_id" "bytea" NOT NULL,
	"stored_at" timestamp with time zone DEFAULT now() NOT NULL,
	"bytes" "bytea" NOT NULL,
	CONSTRAINT "shared_body_mesh_id_sender_body_id_pk" PRIMARY KEY("mesh_id","sender","body_id")
);
--> statement-breakpoint
ALTER TABLE "dead_letter" ADD COLUMN "body_id" "bytea";--> statement-breakpoint
ALTER TABLE "dead_letter" ADD COLUMN "body_bytes" integer;--> statement-breakpoint
ALTER TABLE "message_queue" ADD COLUMN "body_id" "bytea";--> statement-breakpoint
ALTER TABLE "message_queue" ADD COLUMN "body_bytes" integer;--> statement-breakpoint
CREATE INDEX "dead_letter_body" ON "dead_letter" USING btree ("mesh_id","sender","body_id") WHERE "dead_letter"."body_id" is not null;--> statement-breakpoint
CREATE INDEX "message_queue_body" ON "message_queue" USING btree ("mesh_id","sender","body_id") WHERE "message_queue"."body_id" is not null;--> statement-breakpoint
ALTER TABLE "shared_body" ALTER COLUMN "bytes" SET STORAGE EXTERNAL;
