CREATE TABLE "invite" (
	"mesh_id" uuid NOT NULL,
	"invite_id" uuid NOT NULL,
	"hash" "bytea",
	"issuer" integer,
	"uses" integer DEFAULT 0 NOT NULL,
	"uses_max" integer,
	"not_after" timestamp with time zone,
	"revoked_at" timestamp with time zone,
	CONSTRAINT "invite_mesh_id_invite_id_pk" PRIMARY KEY("mesh_id","invite_id")
);
--> statement-breakpoint
ALTER TABLE "member" ADD COLUMN "name" text;--> statement-breakpoint
ALTER TABLE "member" ADD COLUMN "role" text DEFAULT 'member' NOT NULL;--> statement-breakpoint
ALTER TABLE "member" ADD COLUMN "invite_id" uuid;--> statement-breakpoint
ALTER TABLE "invite" ADD CONSTRAINT "invite_mesh_id_mesh_mesh_id_fk" FOREIGN KEY ("mesh_id") REFERENCES "public"."mesh"("mesh_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "invite" ADD CONSTRAINT "invite_mesh_id_issuer_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","issuer") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "member_name" ON "member" USING btree ("mesh_id",lower("name"));