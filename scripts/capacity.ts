/**
 * Runs the capacity planner in apps/bench: `bun scripts/capacity.ts --peers 1M --messages 50`; `--help` lists the
 * options.
 */
import '@sealpost/bench/capacity'
