CREATE TABLE "heir_statement" (
	"mesh_id" uuid NOT NULL,
	"peer_no" integer NOT NULL,
	"user_key" "bytea" NOT NULL,
	"epoch" integer NOT NULL,
	"statement" "bytea" NOT NULL,
	CONSTRAINT "heir_statement_mesh_id_peer_no_pk" PRIMARY KEY("mesh_id","peer_no")
);
--> statement-breakpoint
CREATE TABLE "key_recovery" (
	"mesh_id" uuid NOT NULL,
	"former_key" "bytea" NOT NULL,
	"peer_no" integer NOT NULL,
	"epoch" integer NOT NULL,
	"heir_key" "bytea" NOT NULL,
	"successor_key" "bytea" NOT NULL,
	"statement" "bytea" NOT NULL,
	"published_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "key_recovery_mesh_id_former_key_pk" PRIMARY KEY("mesh_id","former_key")
);
--> statement-breakpoint
ALTER TABLE "heir_statement" ADD CONSTRAINT "heir_statement_mesh_id_peer_no_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","peer_no") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "key_recovery" ADD CONSTRAINT "key_recovery_mesh_id_peer_no_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","peer_no") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "key_recovery_successor" ON "key_recovery" USING btree ("mesh_id","successor_key");--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "heir_statement" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "key_recovery" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
