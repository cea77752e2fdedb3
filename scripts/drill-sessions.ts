/** Runs the sessions drill: `bun scripts/drill-sessions.ts`; `--help` lists the options. */
import { runDrill } from '@sealpost/drills/drill'
import { sessionsDrill } from '@sealpost/drills/sessions'

await runDrill(sessionsDrill)
