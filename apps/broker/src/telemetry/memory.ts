let lastBytes = 0

/** Resident memory of this process. The kernel reports it in a file: a process without a free descriptor gets the last reading. */
export function residentBytes(): number {
  try {
    lastBytes = process.memoryUsage.rss()
  } catch {} // EMFILE
  return lastBytes
}
