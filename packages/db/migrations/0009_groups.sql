CREATE TABLE "peer_group" (
	"mesh_id" uuid NOT NULL,
	"group_id" uuid NOT NULL,
	"owner" integer NOT NULL,
	"epoch" integer NOT NULL,
	"statement" "bytea" NOT NULL,
	CONSTRAINT "peer_group_mesh_id_group_id_pk" PRIMARY KEY("mesh_id","group_id")
);
--> statement-breakpoint
ALTER TABLE "peer_group" ADD CONSTRAINT "peer_group_mesh_id_owner_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","owner") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;