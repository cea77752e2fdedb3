/** Runs the drain probe in apps/bench: `bun scripts/drain.ts`; `--help` lists the options. */
import '@sealpost/bench/drain'
