/** Runs the restore drill: `bun scripts/drill-restore.ts`; `--help` lists the options. */
import { runDrill } from '@sealpost/drills/drill'
import { restoreDrill } from '@sealpost/drills/restore'

await runDrill(restoreDrill)
