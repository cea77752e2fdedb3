CREATE TABLE "pool" (
	"mesh_id" uuid NOT NULL,
	"peer_no" integer NOT NULL,
	"owner" integer NOT NULL,
	"epoch" integer NOT NULL,
	"members" integer[] NOT NULL,
	"statement" "bytea" NOT NULL,
	CONSTRAINT "pool_mesh_id_peer_no_pk" PRIMARY KEY("mesh_id","peer_no")
);
--> statement-breakpoint
ALTER TABLE "delayed_delivery" ADD COLUMN "body_id" "bytea";--> statement-breakpoint
ALTER TABLE "delayed_delivery" ADD COLUMN "body_bytes" integer;--> statement-breakpoint
ALTER TABLE "member" ADD COLUMN "is_pool" boolean DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE "message_queue" ADD COLUMN "lease_holder" integer;--> statement-breakpoint
ALTER TABLE "session" ADD COLUMN "opened_epoch" bigint DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "shared_body" ADD COLUMN "readers" integer[];--> statement-breakpoint
ALTER TABLE "pool" ADD CONSTRAINT "pool_mesh_id_peer_no_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","peer_no") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "pool" ADD CONSTRAINT "pool_mesh_id_owner_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","owner") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "delayed_delivery_body" ON "delayed_delivery" USING btree ("mesh_id","sender","body_id") WHERE "delayed_delivery"."body_id" is not null;