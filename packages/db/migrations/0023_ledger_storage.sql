-- A row with the ids of fifty envelopes passes 2 kB, from where on Postgres tries to compress and to move out: a fifth of
-- its time for a message in a burst. Random ids do not compress, and such a row fits a page.
ALTER TABLE "dedupe_ledger" SET (toast_tuple_target = 8160);
--> statement-breakpoint
ALTER TABLE "dedupe_ledger" ALTER COLUMN "envelope_ids" SET STORAGE EXTERNAL, ALTER COLUMN "fingerprints" SET STORAGE EXTERNAL,
  ALTER COLUMN "ids" SET STORAGE EXTERNAL, ALTER COLUMN "recipients" SET STORAGE EXTERNAL, ALTER COLUMN "priorities" SET STORAGE EXTERNAL;
