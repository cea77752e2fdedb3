/** Runs the benchmark in apps/bench: `bun scripts/bench.ts --only burst`; `--help` lists the options. */
import '@sealpost/bench/figures'
