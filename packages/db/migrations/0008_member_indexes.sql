ALTER TABLE "member" DROP CONSTRAINT "member_peer_key";--> statement-breakpoint
DROP INDEX "member_name";--> statement-breakpoint
CREATE UNIQUE INDEX "member_peer_key" ON "member" USING btree ("mesh_id","peer_key") WHERE "member"."peer_key" is not null;--> statement-breakpoint
CREATE UNIQUE INDEX "member_name" ON "member" USING btree ("mesh_id",lower("name")) WHERE "member"."name" is not null;