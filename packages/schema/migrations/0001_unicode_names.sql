ALTER TABLE "member" ADD COLUMN "skeleton" text;--> statement-breakpoint
ALTER TABLE "member" ADD COLUMN "folded" text;--> statement-breakpoint
-- Written by hand: the skeleton of a name in ASCII, as `skeletonOf` of @sealpost/std/confusables returns it. It is for the
-- members without a skeleton, whom the previous version enrolled.
CREATE FUNCTION name_skeleton(name text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT replace(lower(replace(translate(name, '01I|`', 'Olll'''), '"', '''''')), 'm', 'rn')
$$;
--> statement-breakpoint
CREATE UNIQUE INDEX "member_skeleton" ON "member" USING btree ("mesh_id","skeleton") WHERE "member"."name" is not null and "member"."skeleton" is not null;--> statement-breakpoint
CREATE UNIQUE INDEX "member_folded" ON "member" USING btree ("mesh_id","folded") WHERE "member"."name" is not null and "member"."folded" is not null;--> statement-breakpoint
CREATE INDEX "member_skeleton_of_ascii" ON "member" USING btree ("mesh_id",name_skeleton("name")) WHERE "member"."name" is not null and "member"."skeleton" is null;