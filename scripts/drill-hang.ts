/** Runs the hang drill: `bun scripts/drill-hang.ts`; `--help` lists the options. */
import { runDrill } from '@sealpost/drills/drill'
import { hangDrill } from '@sealpost/drills/hang'

await runDrill(hangDrill)
