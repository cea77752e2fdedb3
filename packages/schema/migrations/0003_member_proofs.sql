CREATE TABLE "member_proof" (
	"mesh_id" uuid NOT NULL,
	"peer_key" "bytea" NOT NULL,
	"kind" text NOT NULL,
	"issuer" "bytea" NOT NULL,
	"at_ms" bigint NOT NULL,
	"statement" "bytea" NOT NULL,
	CONSTRAINT "member_proof_mesh_id_peer_key_kind_issuer_pk" PRIMARY KEY("mesh_id","peer_key","kind","issuer")
);
--> statement-breakpoint
CREATE TABLE "member_revocation" (
	"mesh_id" uuid NOT NULL,
	"number" integer NOT NULL,
	"statement" "bytea" NOT NULL,
	CONSTRAINT "member_revocation_mesh_id_number_pk" PRIMARY KEY("mesh_id","number")
);
--> statement-breakpoint
CREATE TABLE "mesh_root" (
	"mesh_id" uuid PRIMARY KEY NOT NULL,
	"root_key" "bytea" NOT NULL,
	"adopted_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
--> statement-breakpoint
ALTER TABLE "member_proof" ADD CONSTRAINT "member_proof_mesh_id_mesh_mesh_id_fk" FOREIGN KEY ("mesh_id") REFERENCES "public"."mesh"("mesh_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "member_revocation" ADD CONSTRAINT "member_revocation_mesh_id_mesh_mesh_id_fk" FOREIGN KEY ("mesh_id") REFERENCES "public"."mesh"("mesh_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "mesh_root" ADD CONSTRAINT "mesh_root_mesh_id_mesh_mesh_id_fk" FOREIGN KEY ("mesh_id") REFERENCES "public"."mesh"("mesh_id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "mesh_root" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "member_proof" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "member_revocation" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
