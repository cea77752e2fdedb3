/** Runs the roll drill: `bun scripts/drill-roll.ts`; `--help` lists the options. */
import { runDrill } from '@sealpost/drills/drill'
import { rollDrill } from '@sealpost/drills/roll'

await runDrill(rollDrill)
