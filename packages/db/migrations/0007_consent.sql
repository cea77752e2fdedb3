CREATE TABLE "consent" (
	"mesh_id" uuid NOT NULL,
	"owner" integer NOT NULL,
	"peer_no" integer NOT NULL,
	"is_blocked" boolean NOT NULL,
	CONSTRAINT "consent_mesh_id_owner_peer_no_pk" PRIMARY KEY("mesh_id","owner","peer_no")
);
--> statement-breakpoint
CREATE TABLE "former_binding" (
	"mesh_id" uuid NOT NULL,
	"peer_no" integer NOT NULL,
	"box_epoch" integer NOT NULL,
	"box_key" "bytea" NOT NULL,
	"binding_not_after_ms" bigint NOT NULL,
	"binding_signature" "bytea" NOT NULL,
	"retired_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "former_binding_mesh_id_peer_no_box_epoch_pk" PRIMARY KEY("mesh_id","peer_no","box_epoch")
);
--> statement-breakpoint
ALTER TABLE "member" ADD COLUMN "consent_policy" text DEFAULT 'open' NOT NULL;--> statement-breakpoint
ALTER TABLE "member" ADD COLUMN "consent_version" integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "consent" ADD CONSTRAINT "consent_mesh_id_owner_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","owner") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "consent" ADD CONSTRAINT "consent_mesh_id_peer_no_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","peer_no") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "former_binding" ADD CONSTRAINT "former_binding_mesh_id_peer_no_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","peer_no") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;