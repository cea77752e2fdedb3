ALTER TABLE "mesh" ADD COLUMN "lineage" uuid;--> statement-breakpoint
ALTER TABLE "mesh" ADD COLUMN "lineage_in" uuid;