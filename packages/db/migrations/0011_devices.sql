CREATE TABLE "device" (
	"mesh_id" uuid NOT NULL,
	"peer_no" integer NOT NULL,
	"person" integer NOT NULL,
	"invite_key" "bytea" NOT NULL,
	"statement" "bytea" NOT NULL,
	"removal" "bytea",
	"removed_at" timestamp with time zone,
	CONSTRAINT "device_mesh_id_peer_no_pk" PRIMARY KEY("mesh_id","peer_no")
);
--> statement-breakpoint
CREATE TABLE "former_identity" (
	"mesh_id" uuid NOT NULL,
	"peer_key" "bytea" NOT NULL,
	"peer_no" integer NOT NULL,
	"statement" "bytea" NOT NULL,
	"retired_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "former_identity_mesh_id_peer_key_pk" PRIMARY KEY("mesh_id","peer_key")
);
--> statement-breakpoint
ALTER TABLE "former_binding" ADD COLUMN "peer_key" "bytea";--> statement-breakpoint
ALTER TABLE "member" ADD COLUMN "person" integer;--> statement-breakpoint
ALTER TABLE "member" ADD COLUMN "vouched_until" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "device" ADD CONSTRAINT "device_mesh_id_peer_no_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","peer_no") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "device" ADD CONSTRAINT "device_mesh_id_person_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","person") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "former_identity" ADD CONSTRAINT "former_identity_mesh_id_peer_no_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","peer_no") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "device_invite" ON "device" USING btree ("mesh_id","person","invite_key");--> statement-breakpoint
CREATE INDEX "former_identity_peer" ON "former_identity" USING btree ("mesh_id","peer_no");