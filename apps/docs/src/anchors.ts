/** Returns the anchor of a heading by GitHub's rule, so that a link works in the repository and on the site. */
export const anchorOf = (title: string): string =>
  title
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-')
