CREATE TABLE "access_token" (
	"mesh_id" uuid NOT NULL,
	"hash" "bytea" NOT NULL,
	"peer_no" integer NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"revoked_at" timestamp with time zone,
	CONSTRAINT "access_token_mesh_id_hash_pk" PRIMARY KEY("mesh_id","hash")
);
--> statement-breakpoint
ALTER TABLE "access_token" ADD CONSTRAINT "access_token_mesh_id_peer_no_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","peer_no") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "access_token_peer" ON "access_token" USING btree ("mesh_id","peer_no");