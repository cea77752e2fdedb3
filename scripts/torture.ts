/** Runs the torture test in apps/torture: `bun scripts/torture.ts --minutes 5`; `--help` lists the options. */
import '@sealpost/torture'
