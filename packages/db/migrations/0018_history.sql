CREATE TABLE "history_event" (
	"mesh_id" uuid NOT NULL,
	"space_id" uuid NOT NULL,
	"seq" bigint NOT NULL,
	"at" timestamp with time zone NOT NULL,
	"kind" smallint NOT NULL,
	"key_hash" "bytea",
	"author" integer NOT NULL,
	"record" "bytea" NOT NULL,
	"body" "bytea",
	CONSTRAINT "history_event_mesh_id_space_id_seq_at_pk" PRIMARY KEY("mesh_id","space_id","seq","at")
) PARTITION BY RANGE ("at");
--> statement-breakpoint
CREATE TABLE "snapshot" (
	"mesh_id" uuid NOT NULL,
	"space_id" uuid NOT NULL,
	"seq" bigint NOT NULL,
	"at" timestamp with time zone NOT NULL,
	"entries" integer DEFAULT 0 NOT NULL,
	"bytes" bigint DEFAULT 0 NOT NULL,
	"done_at" timestamp with time zone,
	"progress" "bytea",
	CONSTRAINT "snapshot_mesh_id_space_id_seq_pk" PRIMARY KEY("mesh_id","space_id","seq")
);
--> statement-breakpoint
CREATE TABLE "snapshot_entry" (
	"mesh_id" uuid NOT NULL,
	"space_id" uuid NOT NULL,
	"snapshot_seq" bigint NOT NULL,
	"snapshot_at" timestamp with time zone NOT NULL,
	"key_hash" "bytea" NOT NULL,
	"seq" bigint NOT NULL,
	"at" timestamp with time zone NOT NULL,
	"author" integer NOT NULL,
	"entry" "bytea" NOT NULL,
	CONSTRAINT "snapshot_entry_pk" PRIMARY KEY("mesh_id","space_id","snapshot_seq","key_hash","snapshot_at")
) PARTITION BY RANGE ("snapshot_at");
--> statement-breakpoint
CREATE TABLE "space" (
	"mesh_id" uuid NOT NULL,
	"space_id" uuid NOT NULL,
	"owner" integer NOT NULL,
	"epoch" integer NOT NULL,
	"statement" "bytea" NOT NULL,
	"history_for" text NOT NULL,
	"keeps_messages" boolean NOT NULL,
	"keep_seconds" integer NOT NULL,
	"keep_bytes" bigint NOT NULL,
	"kept_since" timestamp with time zone,
	"key_epoch" integer DEFAULT 0 NOT NULL,
	"last_seq" bigint DEFAULT 0 NOT NULL,
	"last_at" timestamp with time zone,
	"entries" integer DEFAULT 0 NOT NULL,
	"entry_bytes" bigint DEFAULT 0 NOT NULL,
	"history_bytes" bigint DEFAULT 0 NOT NULL,
	CONSTRAINT "space_mesh_id_space_id_pk" PRIMARY KEY("mesh_id","space_id")
);
--> statement-breakpoint
CREATE TABLE "space_grant" (
	"mesh_id" uuid NOT NULL,
	"space_id" uuid NOT NULL,
	"peer_no" integer NOT NULL,
	"key_epoch" integer NOT NULL,
	"granter" integer NOT NULL,
	"box" "bytea",
	"fetched_at" timestamp with time zone,
	CONSTRAINT "space_grant_mesh_id_space_id_peer_no_key_epoch_pk" PRIMARY KEY("mesh_id","space_id","peer_no","key_epoch")
);
--> statement-breakpoint
CREATE TABLE "state_entry" (
	"mesh_id" uuid NOT NULL,
	"space_id" uuid NOT NULL,
	"key_hash" "bytea" NOT NULL,
	"revision" bigint NOT NULL,
	"seq" bigint NOT NULL,
	"at" timestamp with time zone NOT NULL,
	"author" integer NOT NULL,
	"is_deleted" boolean NOT NULL,
	"entry" "bytea" NOT NULL,
	CONSTRAINT "state_entry_mesh_id_space_id_key_hash_pk" PRIMARY KEY("mesh_id","space_id","key_hash")
);
--> statement-breakpoint
ALTER TABLE "space" ADD CONSTRAINT "space_mesh_id_owner_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","owner") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "space_grant" ADD CONSTRAINT "space_grant_mesh_id_peer_no_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","peer_no") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "space_grant" ADD CONSTRAINT "space_grant_mesh_id_granter_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","granter") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
-- A clock that jumps, or a job that made no partition in time, must not fail a commit: what belongs to no day goes here.
CREATE TABLE "history_event_default" PARTITION OF "history_event" DEFAULT;--> statement-breakpoint
CREATE TABLE "snapshot_entry_default" PARTITION OF "snapshot_entry" DEFAULT;--> statement-breakpoint
-- Ciphertext does not compress: do not try.
ALTER TABLE "history_event" ALTER COLUMN "record" SET STORAGE EXTERNAL, ALTER COLUMN "body" SET STORAGE EXTERNAL;--> statement-breakpoint
ALTER TABLE "snapshot_entry" ALTER COLUMN "entry" SET STORAGE EXTERNAL;--> statement-breakpoint
ALTER TABLE "state_entry" ALTER COLUMN "entry" SET STORAGE EXTERNAL;--> statement-breakpoint
ALTER TABLE "space_grant" ALTER COLUMN "box" SET STORAGE EXTERNAL;--> statement-breakpoint
-- Changed by every write into a space: room for the new row beside the old one.
ALTER TABLE "space" SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);--> statement-breakpoint
ALTER TABLE "state_entry" SET (fillfactor = 85);--> statement-breakpoint
-- Whatever changes a space that is there locks its row and finds `last_seq` negative while its mesh moves; only a new one has no row yet.
CREATE TRIGGER refuse_while_moving BEFORE INSERT ON "space" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
