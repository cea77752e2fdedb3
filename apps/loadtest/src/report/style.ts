/** How the page looks: on a phone and a screen, by day and by night, and on paper. */
export const STYLE = `
:root { color-scheme: light dark; --ink: #24292f; --faint: #59636e; --line: #d8dade; --page: #fff; --good: #1a7f37; --bad: #c62828 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --faint: #9da7b1; --line: #3d444d; --page: #14181d; --good: #4ac26b; --bad: #ff7b72 } }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 64rem; font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page) }
h1 { margin: 0; font-size: 1.6rem }
h2 { margin: 2.5rem 0 .25rem; padding-top: 1rem; border-top: 1px solid var(--line); font-size: 1.25rem }
.verdict, .headline { margin: .25rem 0; font-size: 1.15rem; font-weight: 600 }
.good { color: var(--good) } .bad { color: var(--bad) } .faint { margin-top: 0; color: var(--faint) }
.wide { overflow-x: auto }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
th, td { padding: .3rem .8rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap }
th { font-weight: 600; color: var(--faint) }
th:first-child, td:first-child, .words th, .words td { text-align: left }
.words td { white-space: normal }
.checks { padding: 0; list-style: none }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 28rem), 1fr)); gap: 1rem }
figure { margin: 0 } figure svg { width: 100%; height: auto; border-radius: .4rem }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: 1rem 0 } dt { color: var(--faint) } dd { margin: 0 }
code { overflow-wrap: anywhere }
@media print { section { break-inside: avoid } }
`
