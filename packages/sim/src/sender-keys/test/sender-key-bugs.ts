/** Lists planted bugs of sender keys, each an edit of the real code that the simulator must detect. */
import type { PlantedBug } from '../../mutants/test/planted-bugs.ts'

type Edit = Omit<PlantedBug, 'folder'>

const identity: readonly Edit[] = [
  {
    name: 'a departure does not end the chain',
    from: '    for (const holder of holders.keys()) if (!recipients.has(holder)) return true\n',
    to: '',
    breaks: /^departure/,
  },
  {
    name: 'the time does not end a chain',
    from: 'if (nowMs < begunMs || nowMs - begunMs >= SENDER_KEY_MS_MAX) return true',
    to: '',
    breaks: /^theft/,
  },
  {
    name: 'the key of a chain does not advance',
    from: '    wipe(key, chain.key)\n    const { id: chainId, number } = chain\n    chain.key = next\n',
    to: '    wipe(key)\n    const { id: chainId, number } = chain\n',
    breaks: /^key: a message key sealed twice/,
  },
  {
    name: 'a chain begins with a key that is not random',
    from: 'const [id, key] = [toHex(this.#crypto.random(KEY_BYTES)), this.#crypto.random(KEY_BYTES)]',
    to: 'const [id, key] = [toHex(this.#crypto.random(KEY_BYTES)), new Uint8Array(KEY_BYTES)]',
    breaks: /^key: a message key sealed twice/,
  },
  {
    name: 'a distribution names the beginning of its chain',
    from: 'encodeDistribution(this.#scope, { chainId, number, key })',
    to: 'encodeDistribution(this.#scope, { chainId, number: 0, key })',
    breaks: /^refusal/,
  },
  {
    name: 'each message has a distribution of its own',
    from: 'if (!holders.has(peer) && !owed.has(peer)) owed.set',
    to: 'if (holders.get(peer)?.distribution !== null && !owed.has(peer)) owed.set',
    breaks: /^theft|^false alarm/,
  },
  {
    name: 'only the first message has a distribution',
    from: '  return encodeTicket({ ...message, distribution: holder.distribution })',
    to: '  return encodeTicket({ ...message, distribution })',
    breaks: /^false alarm/,
  },
  {
    name: 'a confirmation counts for each chain',
    from: 'this.#chain?.id === chainId && this.#chain.holders.get(peer)',
    to: 'this.#chain?.holders.get(peer)',
    breaks: /^false alarm/,
  },
  {
    name: 'the distribution of a known chain remains',
    from: '    this.#distributions.push(opened.place)\n',
    to: '',
    breaks: /^theft/,
  },
  {
    name: 'the key of a settled group message remains',
    from: 'if (chain !== undefined) settleInChains(this.#state, { chain, number })',
    to: '',
    breaks: /^opened again|^theft/,
  },
  {
    name: 'the key of a group message is deleted when it is opened',
    from: '    const { key } = chain.keys.get(number)!\n',
    to: '    const { key } = chain.keys.get(number)!\n    chain.keys.delete(number)\n',
    breaks: /^silent loss/,
  },
  {
    name: 'a deleted key of a chain counts as settled',
    from: "deletedKey(this.#state, { chain, number }) === 'settled' ? 'settled' : 'sender_key_gone'",
    to: "deletedKey(this.#state, { chain, number }) && 'settled'",
    breaks: /^silent loss/,
  },
  {
    name: 'a restored store counts its chains from the beginning',
    from: 'keys.#lastNumber = fields.u32()',
    to: 'fields.u32()',
    breaks: /^silent loss|^false alarm|^refusal|^bug/,
  },
]

const sim: readonly Edit[] = [
  {
    name: 'a settlement is stored without its chain',
    from: 'changes: [[recordKey(line), bytes]]',
    to: 'changes: bytes ? [] : []',
    breaks: /^false alarm|^silent loss/,
  },
  {
    name: 'a settlement is stored without its distribution',
    from: '    for (const place of shared.settled) this.ratchets[line]!.settle(place)\n',
    to: '',
    breaks: /^theft/,
  },
]

export const senderKeyBugs: readonly PlantedBug[] = Object.entries({ identity, sim }).flatMap(([folder, edits]) =>
  edits.map((edit) => ({ ...edit, folder })),
)
