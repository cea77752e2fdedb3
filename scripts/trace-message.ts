/** Runs the message tracer in apps/bench: `bun scripts/trace-message.ts --functions`; `--help` lists the options. */
import '@sealpost/bench/trace'
