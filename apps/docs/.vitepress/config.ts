/** The site: its pages come from `src/stage.ts`, their order from `src/pages.ts`. Nothing in it asks for another server. */
import { defineConfig } from 'vitepress'
import { anchorOf } from '../src/anchors.ts'
import { placeOf, sections } from '../src/pages.ts'

export default defineConfig({
  lang: 'en-GB',
  title: 'Sealpost',
  description: 'A durable, end-to-end encrypted message broker on Postgres',
  srcDir: 'pages',
  outDir: 'dist',
  base: './', // it can lie under any path, and be opened from a folder
  transformHead: ({ page }) => {
    const href = `${'../'.repeat(page.split('/').length - 1)}icon.svg`
    return [['link', { rel: 'icon', type: 'image/svg+xml', href }]]
  },
  markdown: { anchor: { slugify: anchorOf } },
  vite: { logLevel: 'warn' },
  themeConfig: {
    logo: '/icon.svg',
    search: { provider: 'local' },
    outline: [2, 3],
    externalLinkIcon: true,
    nav: [
      { text: 'Start', link: '/start' },
      { text: 'SDK', link: '/sdk' },
      { text: 'Protocol', link: '/protocol' },
      { text: 'Operations', link: '/operations' },
    ],
    sidebar: sections.map(({ name, pages }) => ({
      text: name,
      collapsed: name === 'Decisions',
      items: pages.map((page) => ({ text: page.name, link: `/${placeOf(page.path)}` })),
    })),
  },
})
