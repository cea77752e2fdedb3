/** Runs the failover drill: `bun scripts/drill-failover.ts`; `--help` lists the options. */
import { runDrill } from '@sealpost/drills/drill'
import { failoverDrill } from '@sealpost/drills/failover'

await runDrill(failoverDrill)
