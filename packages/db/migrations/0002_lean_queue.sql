CREATE SEQUENCE "public"."delivery_block" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1;--> statement-breakpoint
-- Ids go on above the former ones.
SELECT setval('delivery_block', (last_value >> 20) + 1) FROM "message_queue_id_seq";--> statement-breakpoint
ALTER TABLE "message_queue" DROP CONSTRAINT "message_queue_envelope_length";--> statement-breakpoint
ALTER TABLE "message_queue" DROP CONSTRAINT "message_queue_expiry";--> statement-breakpoint
ALTER TABLE "message_queue" DROP CONSTRAINT "message_queue_lease_whole";--> statement-breakpoint
ALTER TABLE "message_queue" ALTER COLUMN "id" DROP IDENTITY;--> statement-breakpoint
ALTER TABLE "message_queue" ALTER COLUMN "enqueued_at" SET DEFAULT now();--> statement-breakpoint
ALTER TABLE "message_queue" DROP COLUMN "lease_owner";
