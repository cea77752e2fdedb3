CREATE TABLE "attachment" (
	"mesh_id" uuid NOT NULL,
	"attachment_id" uuid NOT NULL,
	"owner" integer NOT NULL,
	"recipients" integer[],
	"group_id" uuid,
	"bytes" bigint NOT NULL,
	"chunk_bytes" integer NOT NULL,
	"store" text NOT NULL,
	"hash" "bytea",
	"keep_seconds" integer NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"completed_at" timestamp with time zone,
	"expires_at" timestamp with time zone NOT NULL,
	CONSTRAINT "attachment_mesh_id_attachment_id_pk" PRIMARY KEY("mesh_id","attachment_id")
);
--> statement-breakpoint
CREATE TABLE "attachment_chunk" (
	"mesh_id" uuid NOT NULL,
	"attachment_id" uuid NOT NULL,
	"chunk_no" integer NOT NULL,
	"hash" "bytea" NOT NULL,
	"content" "bytea",
	CONSTRAINT "attachment_chunk_mesh_id_attachment_id_chunk_no_pk" PRIMARY KEY("mesh_id","attachment_id","chunk_no")
);
--> statement-breakpoint
ALTER TABLE "attachment" ADD CONSTRAINT "attachment_mesh_id_owner_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","owner") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "attachment_chunk" ADD CONSTRAINT "attachment_chunk_of" FOREIGN KEY ("mesh_id","attachment_id") REFERENCES "public"."attachment"("mesh_id","attachment_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "attachment_owner" ON "attachment" USING btree ("mesh_id","owner");--> statement-breakpoint
CREATE INDEX "attachment_expiry" ON "attachment" USING btree ("mesh_id","expires_at");--> statement-breakpoint
-- Sealed bytes do not compress: do not try.
ALTER TABLE "attachment_chunk" ALTER COLUMN "content" SET STORAGE EXTERNAL;--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "attachment" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "attachment_chunk" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
