/** Runs the load test in apps/loadtest: `bun scripts/load-test.ts 100 1000`; `--help` lists the options. */
import '@sealpost/loadtest'
