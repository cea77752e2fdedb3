/** Draws the icons, next to text that gives their meaning. */
const icon =
  (path: string, className = 'icon') =>
  () => (
    <svg viewBox="0 0 24 24" class={className} aria-hidden="true">
      <path d={path} />
    </svg>
  )

export const Logo = icon('M3 6h18v12H3zm0 0 9 7 9-7', 'icon logo')
export const BackIcon = icon('M15 5l-7 7 7 7')
export const ChevronIcon = icon('M6 15l6-6 6 6', 'icon chevron')
export const SendIcon = icon('M5 12h13M12 5l7 7-7 7')
export const CloseIcon = icon('M6 6l12 12M18 6 6 18')
export const ClockIcon = icon('M12 4a8 8 0 1 1 0 16 8 8 0 0 1 0-16zm0 4v4l2.5 2', 'tick')
export const StoredIcon = icon('M5 13l4.5 4.5L19 7.5', 'tick')

export function Face({ name }: { name: string }) {
  return (
    <span class="face" aria-hidden="true">
      {[...name][0]?.toUpperCase()}
    </span>
  )
}
