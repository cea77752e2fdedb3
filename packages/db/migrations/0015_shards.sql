CREATE TABLE "mesh_pin" (
	"mesh_id" uuid PRIMARY KEY NOT NULL,
	"shard_name" text NOT NULL
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
ALTER TABLE "mesh_pin" ADD CONSTRAINT "mesh_pin_mesh_id_mesh_mesh_id_fk" FOREIGN KEY ("mesh_id") REFERENCES "public"."mesh"("mesh_id") ON DELETE no action ON UPDATE no action;