-- Room on every page for the lease, so that a claim is a heap-only update; vacuum by a fixed number of dead rows, since
-- a queue that is mostly empty has no "share of the table" to go by.
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
ALTER TABLE "dedupe_ledger" SET (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 500000,
  autovacuum_vacuum_cost_delay = 1
);
--> statement-breakpoint
-- Ciphertext does not compress: do not try.
ALTER TABLE "message_queue" ALTER COLUMN "envelope" SET STORAGE EXTERNAL;
--> statement-breakpoint
ALTER TABLE "dead_letter" ALTER COLUMN "envelope" SET STORAGE EXTERNAL;
--> statement-breakpoint
INSERT INTO "cluster" DEFAULT VALUES;
