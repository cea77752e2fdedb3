/**
 * Chooses the length to which a note and a body are padded, so that an envelope's size reveals only a bucket: 256 bytes
 * for all short messages, then 16 lengths for each doubling. From 256 bytes to 64 KiB, these are the lengths of Padmé
 * (Nikitin et al., "Reducing Metadata Leakage from Encrypted Files and Communication with PURBs", PoPETs 2019): 129
 * lengths, which add less than 1/16.
 */

/** Most chat messages, receipts and commands are shorter. */
const SHORTEST = 256

/** Returns the padded length of `bytes`, which must be less than 2^30. */
export function paddedLength(bytes: number): number {
  if (bytes <= SHORTEST) return SHORTEST
  const unit = 1 << (27 - Math.clz32(bytes)) // keeps the five leading bits
  return Math.ceil(bytes / unit) * unit
}
