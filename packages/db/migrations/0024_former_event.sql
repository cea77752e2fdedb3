ALTER TABLE "history_event" ADD COLUMN "former_seq" bigint;--> statement-breakpoint
UPDATE history_event e SET former_seq = f.former_seq
FROM (SELECT mesh_id, space_id, seq, at, lag(seq) OVER (PARTITION BY mesh_id, space_id, key_hash ORDER BY seq) AS former_seq
  FROM history_event WHERE key_hash IS NOT NULL) f
WHERE e.mesh_id = f.mesh_id AND e.space_id = f.space_id AND e.seq = f.seq AND e.at = f.at;
