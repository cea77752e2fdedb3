let lastBytes = 0

/**
 * Returns the resident memory of this process. The kernel reports it in a file: a process out of file descriptors gets
 * the last reading.
 */
export function residentBytes(): number {
  try {
    lastBytes = process.memoryUsage.rss()
  } catch {} // EMFILE
  return lastBytes
}
