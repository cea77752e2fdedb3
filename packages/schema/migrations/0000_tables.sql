CREATE SEQUENCE "public"."delivery_block" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1;--> statement-breakpoint
CREATE SEQUENCE "public"."receipt_id" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1;--> statement-breakpoint
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
CREATE TABLE "cluster" (
	"one" smallint PRIMARY KEY DEFAULT 1 NOT NULL,
	"incarnation" uuid DEFAULT gen_random_uuid() NOT NULL,
	"origin" text,
	"candidate" text,
	"candidate_since" timestamp with time zone,
	"attested" uuid[],
	CONSTRAINT "cluster_single_row" CHECK ("cluster"."one" = 1)
);
--> statement-breakpoint
CREATE TABLE "consent" (
	"mesh_id" uuid NOT NULL,
	"owner" integer NOT NULL,
	"peer_no" integer NOT NULL,
	"is_blocked" boolean NOT NULL,
	CONSTRAINT "consent_mesh_id_owner_peer_no_pk" PRIMARY KEY("mesh_id","owner","peer_no")
);
--> statement-breakpoint
CREATE TABLE "dead_letter" (
	"mesh_id" uuid NOT NULL,
	"recipient" integer NOT NULL,
	"id" bigint NOT NULL,
	"priority" smallint NOT NULL,
	"sender" integer NOT NULL,
	"attempts" integer NOT NULL,
	"strikes" smallint NOT NULL,
	"envelope_id" uuid NOT NULL,
	"enqueued_at" timestamp with time zone NOT NULL,
	"died_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"reason" text NOT NULL,
	"detail" text,
	"told_at" timestamp with time zone,
	"terms" "bytea",
	"body_id" "bytea",
	"body_bytes" integer,
	"envelope" "bytea",
	"bytes" integer GENERATED ALWAYS AS (coalesce(octet_length(envelope), 0) + coalesce(body_bytes, 0)) STORED,
	CONSTRAINT "dead_letter_mesh_id_recipient_id_pk" PRIMARY KEY("mesh_id","recipient","id")
);
--> statement-breakpoint
CREATE TABLE "dedupe_ledger" (
	"mesh_id" uuid NOT NULL,
	"sender" integer NOT NULL,
	"second" bigint NOT NULL,
	"first_id" bigint NOT NULL,
	"keep_until" timestamp with time zone NOT NULL,
	"envelope_ids" uuid[] NOT NULL,
	"fingerprints" bigint[] NOT NULL,
	"ids" bigint[] NOT NULL,
	"recipients" integer[] NOT NULL,
	"priorities" smallint[] NOT NULL,
	CONSTRAINT "dedupe_ledger_mesh_id_sender_second_first_id_pk" PRIMARY KEY("mesh_id","sender","second","first_id")
);
--> statement-breakpoint
CREATE TABLE "delayed_delivery" (
	"mesh_id" uuid NOT NULL,
	"due_at" timestamp with time zone NOT NULL,
	"id" bigint NOT NULL,
	"recipient" integer NOT NULL,
	"priority" smallint NOT NULL,
	"sender" integer NOT NULL,
	"envelope_id" uuid NOT NULL,
	"enqueued_at" timestamp with time zone NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"terms" "bytea",
	"body_id" "bytea",
	"body_bytes" integer,
	"envelope" "bytea" NOT NULL,
	CONSTRAINT "delayed_delivery_mesh_id_due_at_id_pk" PRIMARY KEY("mesh_id","due_at","id")
);
--> statement-breakpoint
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
CREATE TABLE "former_binding" (
	"mesh_id" uuid NOT NULL,
	"peer_no" integer NOT NULL,
	"box_epoch" integer NOT NULL,
	"box_key" "bytea" NOT NULL,
	"binding_not_after_ms" bigint NOT NULL,
	"binding_signature" "bytea" NOT NULL,
	"peer_key" "bytea",
	"retired_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "former_binding_mesh_id_peer_no_box_epoch_pk" PRIMARY KEY("mesh_id","peer_no","box_epoch")
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
CREATE TABLE "member" (
	"mesh_id" uuid NOT NULL,
	"peer_no" integer GENERATED ALWAYS AS IDENTITY (sequence name "member_peer_no_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 2147483647 START WITH 1 CACHE 1),
	"peer_key" "bytea" NOT NULL,
	"box_key" "bytea" NOT NULL,
	"box_epoch" integer NOT NULL,
	"binding_not_after_ms" bigint NOT NULL,
	"binding_signature" "bytea" NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"revoked_at" timestamp with time zone,
	"name" text,
	"role" text DEFAULT 'member' NOT NULL,
	"invite_id" uuid,
	"consent_policy" text DEFAULT 'open' NOT NULL,
	"is_pool" boolean DEFAULT false NOT NULL,
	"consent_version" integer DEFAULT 0 NOT NULL,
	"person" integer,
	"vouched_until" timestamp with time zone,
	CONSTRAINT "member_mesh_id_peer_no_pk" PRIMARY KEY("mesh_id","peer_no"),
	CONSTRAINT "member_lengths" CHECK (length("member"."peer_key") = 32 and length("member"."box_key") = 32 and length("member"."binding_signature") = 64)
);
--> statement-breakpoint
CREATE TABLE "mesh" (
	"mesh_id" uuid PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"frozen_at" timestamp with time zone,
	"moved_to" text,
	"lineage" uuid,
	"lineage_in" uuid
);
--> statement-breakpoint
CREATE TABLE "mesh_move" (
	"mesh_id" uuid PRIMARY KEY NOT NULL,
	"move_id" uuid NOT NULL,
	"side" text NOT NULL,
	"phase" text NOT NULL,
	"cell" text NOT NULL,
	"rows" bigint,
	"pause_ms" bigint
);
--> statement-breakpoint
CREATE TABLE "mesh_pin" (
	"mesh_id" uuid PRIMARY KEY NOT NULL,
	"shard_name" text NOT NULL
);
--> statement-breakpoint
CREATE TABLE "message_queue" (
	"mesh_id" uuid NOT NULL,
	"recipient" integer NOT NULL,
	"priority" smallint NOT NULL,
	"id" bigint NOT NULL,
	"sender" integer NOT NULL,
	"attempts" integer DEFAULT 0 NOT NULL,
	"envelope_id" uuid NOT NULL,
	"enqueued_at" timestamp with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"lease_epoch" bigint,
	"lease_until" timestamp with time zone,
	"lease_holder" integer,
	"first_strike_at" timestamp with time zone,
	"strikes" smallint DEFAULT 0 NOT NULL,
	"terms" "bytea",
	"body_id" "bytea",
	"body_bytes" integer,
	"envelope" "bytea" NOT NULL,
	CONSTRAINT "message_queue_mesh_id_recipient_priority_id_pk" PRIMARY KEY("mesh_id","recipient","priority","id")
);
--> statement-breakpoint
CREATE TABLE "peer_group" (
	"mesh_id" uuid NOT NULL,
	"group_id" uuid NOT NULL,
	"owner" integer NOT NULL,
	"epoch" integer NOT NULL,
	"statement" "bytea" NOT NULL,
	"over_at" timestamp with time zone,
	CONSTRAINT "peer_group_mesh_id_group_id_pk" PRIMARY KEY("mesh_id","group_id")
);
--> statement-breakpoint
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
CREATE TABLE "sender_mark" (
	"mesh_id" uuid NOT NULL,
	"sender" integer NOT NULL,
	"version" bigint DEFAULT 0 NOT NULL,
	"last_envelope_id" uuid DEFAULT '00000000-0000-0000-0000-000000000000' NOT NULL
);
--> statement-breakpoint
CREATE TABLE "session" (
	"mesh_id" uuid NOT NULL,
	"peer_no" integer NOT NULL,
	"shard" uuid,
	"epoch" bigint DEFAULT 0 NOT NULL,
	"opened_at" timestamp with time zone,
	"opened_epoch" bigint DEFAULT 0 NOT NULL,
	CONSTRAINT "session_mesh_id_peer_no_pk" PRIMARY KEY("mesh_id","peer_no")
);
--> statement-breakpoint
CREATE TABLE "shard" (
	"name" text PRIMARY KEY NOT NULL,
	"shard_id" uuid NOT NULL,
	"epoch" bigint DEFAULT 1 NOT NULL,
	"url" text,
	"broker_key" "bytea" NOT NULL,
	"certificate" "bytea",
	"lease_until" timestamp with time zone NOT NULL,
	CONSTRAINT "shard_key_length" CHECK (length("shard"."broker_key") = 32)
);
--> statement-breakpoint
CREATE TABLE "shared_body" (
	"mesh_id" uuid NOT NULL,
	"sender" integer NOT NULL,
	"body_id" "bytea" NOT NULL,
	"stored_at" timestamp with time zone DEFAULT now() NOT NULL,
	"readers" integer[],
	"bytes" "bytea" NOT NULL,
	CONSTRAINT "shared_body_mesh_id_sender_body_id_pk" PRIMARY KEY("mesh_id","sender","body_id")
);
--> statement-breakpoint
CREATE TABLE "admin_audit" (
	"audit_id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "admin_audit_audit_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"actor" text NOT NULL,
	"action" text NOT NULL,
	"mesh_id" uuid,
	"subject" text,
	"count" integer DEFAULT 1 NOT NULL
);
--> statement-breakpoint
CREATE TABLE "admin_token" (
	"token_id" text PRIMARY KEY NOT NULL,
	"hash" "bytea" NOT NULL,
	"name" text NOT NULL,
	"scope" text NOT NULL,
	"mesh_id" uuid,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"revoked_at" timestamp with time zone,
	"last_used_at" timestamp with time zone
);
--> statement-breakpoint
CREATE TABLE "history_event" (
	"mesh_id" uuid NOT NULL,
	"space_id" uuid NOT NULL,
	"seq" bigint NOT NULL,
	"at" timestamp with time zone NOT NULL,
	"kind" smallint NOT NULL,
	"key_hash" "bytea",
	"former_seq" bigint,
	"author" integer NOT NULL,
	"record" "bytea" NOT NULL,
	"body_id" "bytea",
	"body" "bytea",
	CONSTRAINT "history_event_mesh_id_space_id_seq_at_pk" PRIMARY KEY("mesh_id","space_id","seq","at") INCLUDE ("former_seq")
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
	"progress" bigint DEFAULT 0 NOT NULL,
	CONSTRAINT "snapshot_mesh_id_space_id_seq_at_pk" PRIMARY KEY("mesh_id","space_id","seq","at")
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
	CONSTRAINT "snapshot_entry_pk" PRIMARY KEY("mesh_id","space_id","snapshot_seq","snapshot_at","seq")
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
	"hash" "bytea" NOT NULL,
	CONSTRAINT "state_entry_mesh_id_space_id_key_hash_pk" PRIMARY KEY("mesh_id","space_id","key_hash")
);
--> statement-breakpoint
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
ALTER TABLE "access_token" ADD CONSTRAINT "access_token_mesh_id_peer_no_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","peer_no") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "consent" ADD CONSTRAINT "consent_mesh_id_owner_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","owner") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "consent" ADD CONSTRAINT "consent_mesh_id_peer_no_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","peer_no") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "device" ADD CONSTRAINT "device_mesh_id_peer_no_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","peer_no") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "device" ADD CONSTRAINT "device_mesh_id_person_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","person") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "former_binding" ADD CONSTRAINT "former_binding_mesh_id_peer_no_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","peer_no") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "former_identity" ADD CONSTRAINT "former_identity_mesh_id_peer_no_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","peer_no") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "invite" ADD CONSTRAINT "invite_mesh_id_mesh_mesh_id_fk" FOREIGN KEY ("mesh_id") REFERENCES "public"."mesh"("mesh_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "invite" ADD CONSTRAINT "invite_mesh_id_issuer_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","issuer") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "member" ADD CONSTRAINT "member_mesh_id_mesh_mesh_id_fk" FOREIGN KEY ("mesh_id") REFERENCES "public"."mesh"("mesh_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "mesh_pin" ADD CONSTRAINT "mesh_pin_mesh_id_mesh_mesh_id_fk" FOREIGN KEY ("mesh_id") REFERENCES "public"."mesh"("mesh_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "peer_group" ADD CONSTRAINT "peer_group_mesh_id_owner_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","owner") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "pool" ADD CONSTRAINT "pool_mesh_id_peer_no_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","peer_no") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "pool" ADD CONSTRAINT "pool_mesh_id_owner_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","owner") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "sender_mark" ADD CONSTRAINT "sender_mark_mesh_id_sender_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","sender") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "session" ADD CONSTRAINT "session_mesh_id_peer_no_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","peer_no") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "space" ADD CONSTRAINT "space_mesh_id_owner_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","owner") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "space_grant" ADD CONSTRAINT "space_grant_mesh_id_peer_no_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","peer_no") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "space_grant" ADD CONSTRAINT "space_grant_mesh_id_granter_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","granter") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "attachment" ADD CONSTRAINT "attachment_mesh_id_owner_member_mesh_id_peer_no_fk" FOREIGN KEY ("mesh_id","owner") REFERENCES "public"."member"("mesh_id","peer_no") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "attachment_chunk" ADD CONSTRAINT "attachment_chunk_of" FOREIGN KEY ("mesh_id","attachment_id") REFERENCES "public"."attachment"("mesh_id","attachment_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "access_token_peer" ON "access_token" USING btree ("mesh_id","peer_no");--> statement-breakpoint
CREATE INDEX "dead_letter_died" ON "dead_letter" USING btree ("mesh_id","died_at");--> statement-breakpoint
CREATE INDEX "dead_letter_untold" ON "dead_letter" USING btree ("mesh_id","recipient","id") WHERE "dead_letter"."told_at" is null;--> statement-breakpoint
CREATE INDEX "dead_letter_body" ON "dead_letter" USING btree ("mesh_id","sender","body_id") WHERE "dead_letter"."body_id" is not null;--> statement-breakpoint
CREATE INDEX "dedupe_ledger_due" ON "dedupe_ledger" USING btree ("mesh_id","keep_until");--> statement-breakpoint
CREATE INDEX "delayed_delivery_recipient" ON "delayed_delivery" USING btree ("mesh_id","recipient");--> statement-breakpoint
CREATE INDEX "delayed_delivery_body" ON "delayed_delivery" USING btree ("mesh_id","sender","body_id") WHERE "delayed_delivery"."body_id" is not null;--> statement-breakpoint
CREATE UNIQUE INDEX "device_invite" ON "device" USING btree ("mesh_id","person","invite_key");--> statement-breakpoint
CREATE INDEX "former_identity_peer" ON "former_identity" USING btree ("mesh_id","peer_no");--> statement-breakpoint
CREATE UNIQUE INDEX "member_peer_key" ON "member" USING btree ("mesh_id","peer_key") WHERE "member"."peer_key" is not null;--> statement-breakpoint
CREATE UNIQUE INDEX "member_name" ON "member" USING btree ("mesh_id",lower("name")) WHERE "member"."name" is not null;--> statement-breakpoint
CREATE INDEX "message_queue_body" ON "message_queue" USING btree ("mesh_id","sender","body_id") WHERE "message_queue"."body_id" is not null;--> statement-breakpoint
CREATE INDEX "sender_mark_sender" ON "sender_mark" USING btree ("mesh_id","sender");--> statement-breakpoint
CREATE INDEX "admin_audit_mesh" ON "admin_audit" USING btree ("mesh_id","audit_id");--> statement-breakpoint
CREATE INDEX "history_event_body" ON "history_event" USING btree ("mesh_id","space_id","body_id") WHERE "history_event"."body_id" is not null;--> statement-breakpoint
CREATE INDEX "state_entry_seq" ON "state_entry" USING btree ("mesh_id","space_id","seq");--> statement-breakpoint
CREATE INDEX "attachment_owner" ON "attachment" USING btree ("mesh_id","owner");--> statement-breakpoint
CREATE INDEX "attachment_expiry" ON "attachment" USING btree ("mesh_id","expires_at");
--> statement-breakpoint
-- drizzle-kit writes everything above from the table definitions in packages/schema/src/tables; it knows no storage settings,
-- partitions and functions. Those are written by hand.

-- Leaves room on every page for the lease, so that a claim is a heap-only update. Vacuum starts at a fixed number of
-- dead rows: a queue that is mostly empty has no meaningful share of the table.
ALTER TABLE "message_queue" SET (
  fillfactor = 70,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
  autovacuum_vacuum_cost_delay = 1
);
--> statement-breakpoint
ALTER TABLE "session" SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
--> statement-breakpoint
ALTER TABLE "sender_mark" SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
--> statement-breakpoint
-- A row with the ids of fifty envelopes exceeds 2 kB, where Postgres starts to compress and to move columns out of line:
-- a fifth of its time per message in a burst. Random ids do not compress, and such a row fits a page.
ALTER TABLE "dedupe_ledger" SET (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 500000,
  autovacuum_vacuum_cost_delay = 1, toast_tuple_target = 8160
);
--> statement-breakpoint
ALTER TABLE "dedupe_ledger" ALTER COLUMN "envelope_ids" SET STORAGE EXTERNAL, ALTER COLUMN "fingerprints" SET STORAGE EXTERNAL,
  ALTER COLUMN "ids" SET STORAGE EXTERNAL, ALTER COLUMN "recipients" SET STORAGE EXTERNAL, ALTER COLUMN "priorities" SET STORAGE EXTERNAL;
--> statement-breakpoint
-- Every write into a space updates its row: leave room for the new version beside the old one.
ALTER TABLE "space" SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
--> statement-breakpoint
ALTER TABLE "state_entry" SET (fillfactor = 85);
--> statement-breakpoint
-- The default partitions take rows that belong to no day's partition, so that a clock that jumps or a late job never
-- fails a commit.
CREATE TABLE "history_event_default" PARTITION OF "history_event" DEFAULT;
--> statement-breakpoint
CREATE TABLE "snapshot_entry_default" PARTITION OF "snapshot_entry" DEFAULT;
--> statement-breakpoint
-- Ciphertext does not compress.
ALTER TABLE "message_queue" ALTER COLUMN "envelope" SET STORAGE EXTERNAL;
--> statement-breakpoint
ALTER TABLE "dead_letter" ALTER COLUMN "envelope" SET STORAGE EXTERNAL;
--> statement-breakpoint
ALTER TABLE "delayed_delivery" ALTER COLUMN "envelope" SET STORAGE EXTERNAL;
--> statement-breakpoint
ALTER TABLE "shared_body" ALTER COLUMN "bytes" SET STORAGE EXTERNAL;
--> statement-breakpoint
ALTER TABLE "history_event" ALTER COLUMN "record" SET STORAGE EXTERNAL, ALTER COLUMN "body" SET STORAGE EXTERNAL;
--> statement-breakpoint
ALTER TABLE "snapshot_entry" ALTER COLUMN "entry" SET STORAGE EXTERNAL;
--> statement-breakpoint
ALTER TABLE "state_entry" ALTER COLUMN "entry" SET STORAGE EXTERNAL;
--> statement-breakpoint
ALTER TABLE "space_grant" ALTER COLUMN "box" SET STORAGE EXTERNAL;
--> statement-breakpoint
ALTER TABLE "attachment_chunk" ALTER COLUMN "content" SET STORAGE EXTERNAL;
--> statement-breakpoint
-- Refuses changes to a mesh that is moving. Statements on the message tables check this themselves, at no cost; these
-- tables change seldom. FOR SHARE conflicts with the freeze's row lock, so no change falls between check and freeze.
-- SECURITY DEFINER, because the lock needs more than the broker's rights.
CREATE FUNCTION refuse_while_moving() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_catalog, pg_temp AS $$
DECLARE
  place mesh%ROWTYPE;
BEGIN
  SELECT * INTO place FROM mesh WHERE mesh_id = coalesce(NEW.mesh_id, OLD.mesh_id) FOR SHARE;
  -- The old cell deletes the rows of a mesh that has moved.
  IF place.frozen_at IS NULL OR (TG_OP = 'DELETE' AND place.moved_to IS NOT NULL) THEN RETURN coalesce(NEW, OLD); END IF;
  -- lock_not_available: the caller may try again later.
  RAISE EXCEPTION 'this mesh is on its way to another cell, or lives there' USING ERRCODE = '55P03';
END $$;
--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "member" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "device" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "former_identity" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "former_binding" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "consent" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "peer_group" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "pool" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "invite" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "access_token" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "attachment" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
--> statement-breakpoint
CREATE TRIGGER refuse_while_moving BEFORE INSERT OR UPDATE OR DELETE ON "attachment_chunk" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
--> statement-breakpoint
-- A change to an existing space locks its row, and finds `last_seq` negative while the mesh moves. A new space has no row yet.
CREATE TRIGGER refuse_while_moving BEFORE INSERT ON "space" FOR EACH ROW EXECUTE FUNCTION refuse_while_moving();
--> statement-breakpoint
-- Creates the partitions of one UTC day. Builds them apart and attaches them, which blocks no writer. SECURITY DEFINER,
-- because a broker may not create tables.
CREATE FUNCTION add_history_day(day date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_catalog, pg_temp SET lock_timeout = '500ms' SET timezone = 'UTC' AS $$
DECLARE
  parent text;
  child text;
BEGIN
  FOREACH parent IN ARRAY ARRAY['history_event', 'snapshot_entry'] LOOP
    child := parent || to_char(day, '_YYYYMMDD');
    CONTINUE WHEN to_regclass(child) IS NOT NULL;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING STORAGE)', child, parent);
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, child, day, day + 1);
  END LOOP;
END $$;
--> statement-breakpoint
-- Drops the partitions of a day that is over. DROP TABLE locks out everybody, hence the short lock_timeout: the caller tries
-- again.
CREATE FUNCTION drop_history_day(day date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_catalog, pg_temp SET lock_timeout = '50ms' SET timezone = 'UTC' AS $$
DECLARE
  parent text;
BEGIN
  IF day >= current_date - 1 THEN RAISE EXCEPTION 'this day is not over' USING ERRCODE = '22023'; END IF;
  FOREACH parent IN ARRAY ARRAY['history_event', 'snapshot_entry'] LOOP
    EXECUTE format('DROP TABLE IF EXISTS %I', parent || to_char(day, '_YYYYMMDD'));
  END LOOP;
END $$;
--> statement-breakpoint
-- Deletes up to `most` old rows from the default partitions and returns how many.
CREATE FUNCTION clear_undated_history(before timestamptz, most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_catalog, pg_temp AS $$
DECLARE
  events integer;
  entries integer;
BEGIN
  IF before >= clock_timestamp() - interval '1 day' THEN RAISE EXCEPTION 'this day is not over' USING ERRCODE = '22023'; END IF;
  DELETE FROM history_event_default WHERE ctid = ANY (ARRAY(SELECT ctid FROM history_event_default WHERE at < before LIMIT most));
  GET DIAGNOSTICS events = ROW_COUNT;
  DELETE FROM snapshot_entry_default WHERE ctid = ANY (ARRAY(SELECT ctid FROM snapshot_entry_default WHERE snapshot_at < before LIMIT most));
  GET DIAGNOSTICS entries = ROW_COUNT;
  RETURN events + entries;
END $$;
--> statement-breakpoint
-- Returns the server and the timeline of its WAL; null on a standby. SECURITY DEFINER, because pg_control_system() is
-- restricted.
CREATE FUNCTION database_origin() RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN NOT pg_is_in_recovery() THEN (SELECT system_identifier FROM pg_control_system()) || '/'
    || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END
$$;
--> statement-breakpoint
-- Makes `here` the origin, under the same incarnation or a new one. Advances both id sequences far beyond every id that
-- can have been given out, because a restored or promoted sequence may have gone back.
CREATE FUNCTION take_origin(here text, is_new boolean) RETURNS uuid
LANGUAGE plpgsql SET search_path = public, pg_catalog, pg_temp AS $$
DECLARE
  answer uuid;
BEGIN
  PERFORM setval('delivery_block', nextval('delivery_block') + 1048576);
  PERFORM setval('receipt_id', nextval('receipt_id') + 68719476736);
  UPDATE cluster SET origin = here, incarnation = CASE WHEN is_new THEN gen_random_uuid() ELSE incarnation END,
    candidate = NULL, candidate_since = NULL, attested = NULL
  RETURNING incarnation INTO answer;
  RETURN answer;
END $$;
--> statement-breakpoint
-- Returns the incarnation of the database. Begins a new one when the origin has changed, or when the caller states that files
-- were restored. Brokers call `attest_origin` instead, which can keep the incarnation.
CREATE FUNCTION note_origin(is_restored boolean) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_catalog, pg_temp AS $$
DECLARE
  here text := database_origin();
  before cluster%ROWTYPE;
BEGIN
  SELECT * INTO before FROM cluster FOR UPDATE;
  IF is_restored OR before.origin <> here THEN RETURN take_origin(here, true); END IF;
  IF before.origin IS NULL THEN UPDATE cluster SET origin = here; END IF;
  RETURN before.incarnation;
END $$;
--> statement-breakpoint
-- Decides whether the database kept all acknowledged commits after a failover (docs/adr/0010-failover.md). `of_shard`: the
-- attesting shard; `former`: the incarnation it served; `is_whole`: whether it found everything it acknowledged, null if it
-- acknowledged nothing; `patience`: seconds to wait for the other shards. Returns `decided` with the incarnation, `waiting`
-- until the others have attested, or `standby`.
CREATE FUNCTION attest_origin(of_shard uuid, former uuid, is_whole boolean, patience double precision,
  OUT verdict text, OUT origin text, OUT incarnation uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_catalog, pg_temp AS $$
DECLARE
  known cluster%ROWTYPE;
  newest timestamptz;
  is_missing boolean;
BEGIN
  verdict := 'standby';
  origin := database_origin();
  IF origin IS NULL THEN RETURN; END IF;
  verdict := 'decided';
  SELECT * INTO known FROM cluster FOR UPDATE;
  IF known.origin IS NULL THEN UPDATE cluster c SET origin = attest_origin.origin; known.origin := origin; END IF;
  IF known.origin = origin THEN
    incarnation := known.incarnation;
    IF NOT is_whole AND former = known.incarnation THEN incarnation := take_origin(origin, true); END IF;
    RETURN;
  END IF;
  IF NOT is_whole OR former <> known.incarnation OR split_part(known.origin, '/', 1) <> split_part(origin, '/', 1) THEN
    incarnation := take_origin(origin, true);
    RETURN;
  END IF;
  IF known.candidate IS DISTINCT FROM origin THEN
    known.candidate_since := clock_timestamp();
    known.attested := '{}';
  END IF;
  IF is_whole THEN known.attested := known.attested || of_shard; END IF;
  -- A shard whose lease is ten seconds older than the newest one ended before the failover.
  SELECT max(s.lease_until) INTO newest FROM shard s;
  SELECT count(*) > 0 INTO is_missing FROM shard s
    WHERE s.lease_until > newest - interval '10 seconds' AND s.shard_id <> ALL (known.attested);
  IF NOT is_missing AND cardinality(known.attested) > 0 THEN
    incarnation := take_origin(origin, false);
  ELSIF clock_timestamp() >= known.candidate_since + make_interval(secs => patience)
    OR cardinality(known.attested) = 0 AND coalesce(newest < clock_timestamp() - interval '1 minute', true) THEN
    incarnation := take_origin(origin, true);
  ELSE
    verdict := 'waiting';
    UPDATE cluster c SET candidate = attest_origin.origin, candidate_since = known.candidate_since, attested = known.attested;
  END IF;
END $$;
--> statement-breakpoint
INSERT INTO "cluster" DEFAULT VALUES;
