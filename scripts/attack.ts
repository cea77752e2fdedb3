/** Runs the attack bench in apps/bench: `bun scripts/attack.ts --list`; `--help` lists the options. */
import '@sealpost/bench/attack'
