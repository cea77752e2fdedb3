/** Runs the move drill: `bun scripts/drill-move.ts`; `--help` lists the options. */
import { runDrill } from '@sealpost/drills/drill'
import { moveDrill } from '@sealpost/drills/move'

await runDrill(moveDrill)
