/** Configures the site, which loads nothing from other servers. */
import { defineConfig } from 'vitepress'
import { anchorOf, placeOf, sections } from '../src/pages.ts'

/**
 * Ignores stop words in a search. VitePress embeds this function's source in the page, so it must be self-contained.
 */
function withoutStopWords(term: string): string | null {
  const words =
    'a an and are as at be but by can do does for from has have how i if in into is it its may my no not of on or that the their them then there these they this to was what when where which who why will with you your'
  const lower = term.toLowerCase()
  return words.split(' ').includes(lower) ? null : lower
}

export default defineConfig({
  lang: 'en-GB',
  title: 'Sealpost',
  description: 'A durable, end-to-end encrypted message broker on Postgres',
  srcDir: 'pages',
  outDir: 'dist',
  base: './', // relative links, so that the site works under any path
  transformHead: ({ page }) => {
    const href = `${'../'.repeat(page.split('/').length - 1)}icon.svg`
    return [['link', { rel: 'icon', type: 'image/svg+xml', href }]]
  },
  markdown: { anchor: { slugify: anchorOf } },
  vite: { logLevel: 'warn' },
  themeConfig: {
    logo: '/icon.svg',
    search: { provider: 'local', options: { miniSearch: { options: { processTerm: withoutStopWords } } } },
    outline: [2, 3],
    externalLinkIcon: true,
    nav: [
      { text: 'Start', link: '/start' },
      { text: 'SDK', link: '/sdk' },
      { text: 'SDK reference', link: '/reference/sdk' },
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
