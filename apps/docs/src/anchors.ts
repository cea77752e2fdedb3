/** The anchor of a heading, by the rule of the places where the repository is read: one link fits there and here. */
export const anchorOf = (title: string): string =>
  title
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-')
