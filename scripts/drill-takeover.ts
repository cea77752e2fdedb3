/** Runs the takeover drill: `bun scripts/drill-takeover.ts`; `--help` lists the options. */
import { runDrill } from '@sealpost/drills/drill'
import { takeoverDrill } from '@sealpost/drills/takeover'

await runDrill(takeoverDrill)
