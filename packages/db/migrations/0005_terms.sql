CREATE TABLE "delayed_delivery" (
	"mesh_id" uuid NOT NULL,
	"due_at" timestamp with time zone NOT NULL,
	"id" bigint NOT NULL,
	"recipient" integer NOT NULL,
	"priority" smallint NOT NULL,
	"sender" integer NOT NULL,
	"envelope_id" uuid NOT NULL,
	"enqueued_at" timestamp with time zone NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"terms" "bytea",
	"envelope" "bytea" NOT NULL,
	CONSTRAINT "delayed_delivery_mesh_id_due_at_id_pk" PRIMARY KEY("mesh_id","due_at","id")
);
--> statement-breakpoint
ALTER TABLE "dead_letter" ADD COLUMN "detail" text;--> statement-breakpoint
ALTER TABLE "dead_letter" ADD COLUMN "told_at" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "dead_letter" ADD COLUMN "terms" "bytea";--> statement-breakpoint
ALTER TABLE "message_queue" ADD COLUMN "terms" "bytea";--> statement-breakpoint
ALTER TABLE "delayed_delivery" ALTER COLUMN "envelope" SET STORAGE EXTERNAL;
