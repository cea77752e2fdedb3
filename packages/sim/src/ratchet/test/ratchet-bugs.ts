/** Lists planted bugs of ratchets, each an edit of the real code that the simulator must detect. */
import type { PlantedBug } from '../../mutants/test/planted-bugs.ts'

type Edit = Omit<PlantedBug, 'folder'>

const identity: readonly Edit[] = [
  {
    name: 'the key of a settled message remains',
    from: '  wipe(known.key)\n  chain.keys.delete(message)\n  closeIfEmpty(state, number, chain)\n  return true',
    to: '  return true',
    breaks: /^opened again|^theft/,
  },
  {
    name: 'the key of a message is deleted when it is opened',
    from: '  else takeSteps(chain, { ...steps!, opened: number }, nowMs)\n',
    to: '  else takeSteps(chain, { ...steps!, opened: number }, nowMs)\n  chain.keys.delete(number)\n',
    breaks: /^silent loss/,
  },
  {
    name: 'the keys of skipped messages are not kept',
    from: 'for (const [number, key] of steps.keys) chain.keys.set(',
    to: 'for (const [number, key] of steps.keys) if (number === steps.opened) chain.keys.set(',
    breaks: /^silent loss/,
  },
  {
    name: 'the chain key of a step is kept',
    from: '  chain.key = steps.next\n',
    to: '  chain.key ??= steps.next\n',
    breaks: /^theft|^false alarm|^opened again|^bug/,
  },
  {
    name: 'the seed of a used fork remains',
    from: '  offer.seeds.delete(fork)\n  wipe(seed)\n',
    to: '',
    breaks: /^theft/,
  },
  {
    name: 'the recipient keeps the base of a parent',
    from: '    offer.base = walked.base\n    offer.nextFork = fork + 1\n',
    to: '',
    breaks: /^theft|^false alarm|^bug|^report/,
  },
  {
    name: 'the sender does not count the forks of a parent',
    from: '  parent.base = base\n  parent.nextFork += 1\n',
    to: '  parent.base = base\n',
    breaks: /^false alarm|^refusal/,
  },
  {
    name: "a chain's key depends on the store alone",
    from: '  const keys = newKeyPair(crypto)\n  const secret = crypto.sharedSecret(keys.secretKey, parent.publicKey)',
    to: `  const secretKey = parent.base.slice()
  const keys = { secretKey, publicKey: crypto.publicKeyOf(secretKey) }
  const secret = crypto.sharedSecret(keys.secretKey, parent.publicKey)`,
    breaks: /^key: a message key sealed twice/,
  },
  {
    name: 'a deleted key counts as settled',
    from: "return isGone(state, position) ? 'ratchet_key_gone' : 'settled'",
    to: "return 'settled'",
    breaks: /^silent loss/,
  },
  {
    name: 'the length of a closed chain is ignored',
    from: 'closed.tag === tagOf(header.key) && header.number < closed.length',
    to: 'closed.tag === tagOf(header.key)',
    breaks: /^silent loss/,
  },
  {
    name: 'the key of a closed chain is ignored',
    from: 'closed.tag === tagOf(header.key) && header.number < closed.length',
    to: 'header.number < closed.length',
    breaks: /^silent loss/,
  },
  {
    name: 'a parent is deleted although a chain is missing',
    from: '  if (state.unseen.size > 0) return\n',
    to: '',
    breaks: /^false alarm/,
  },
  {
    name: 'a chain closes without the keys of its missing messages',
    from: 'if (length > chain.next && length <= CHAIN_MAX) takeSteps(chain, walk(chain.key, chain.next, length), nowMs)',
    to: '',
    breaks: /^false alarm/,
  },
  {
    name: 'a step waits for ever',
    from: 'return parent!.chain !== sending.parent && !isPaused',
    to: 'return false',
    breaks: /^theft/,
  },
  {
    name: 'a used one-time prekey remains',
    from: '      this.#oneTime.get(oneTimeId)?.secretKey.fill(0)\n      this.#oneTime.delete(oneTimeId)\n',
    to: '',
    breaks: /^theft/,
  },
  {
    name: 'a one-time prekey is deleted before its session is stored',
    from: 'if (oneTimeId !== 0) this.#inUse.set(oneTimeId, sessionId)',
    to: 'this.#oneTime.delete(oneTimeId)',
    breaks: /^false alarm: prekey_gone/,
  },
  {
    name: 'a reset is not reported to the peer',
    from: '{ nowMs, isReset: this.#isResetOwed }',
    to: '{ nowMs, isReset: false }',
    breaks: /^report/,
  },
  {
    name: 'a reset is forgotten when the process ends',
    from: 'ratchet.#isResetOwed = fields.u16() === 1',
    to: 'fields.u16()',
    breaks: /^report/,
  },
  {
    name: 'a reset continues in the same session',
    from: '    this.#current = null\n    this.#isResetOwed = true\n',
    to: '    this.#isResetOwed = true\n',
    breaks: /^liveness/,
  },
  {
    name: 'a restored sender is not detected',
    from: "if (!areEqual(known.id, header.key)) return refuse('ratchet_reset')",
    to: "if (!areEqual(known.id, header.key)) return refuse('settled')",
    breaks: /^silent loss/,
  },
  {
    name: 'peers that agree at once keep their own sessions',
    from: "if (other.standing === 'usable' && isNewer) this.#current = other",
    to: "if (other.standing === 'usable' && (!this.#current || other.isInitiator)) this.#current = other",
    breaks: /^liveness|^theft/,
  },
]

const sim: readonly Edit[] = [
  {
    name: 'a message is stored without its ratchet',
    from: '      ...this.#stateOf(line),\n    ])',
    to: '    ])',
    breaks: /^false alarm/,
  },
  {
    name: 'a settlement is stored without its ratchet',
    from: 'this.#write([mark, ...this.#stateAfter(message)],',
    to: 'this.#write([mark],',
    breaks: /^opened again|^theft|^false alarm/,
  },
  {
    name: 'the ratchet of a message is stored after it is sent',
    from: 'const bytes = this.seal(line, utf8.encode(text))\n',
    to: `const bytes = this.seal(line, utf8.encode(text))
    const { no, lines, broker, nowMs } = this.#owner
    broker.send({ envelopeId, from: no, ...lines[line]!, isShared: false, bytes, atMs: nowMs() })
`,
    breaks: /^bug|^false alarm|^invention/,
  },
  {
    name: 'spent prekeys are not deleted in the batch of the session',
    from: '    this.prekeys.spend(spent)\n',
    to: '    void spent\n',
    breaks: /^theft/,
  },
]

export const ratchetBugs: readonly PlantedBug[] = Object.entries({ identity, sim }).flatMap(([folder, edits]) =>
  edits.map((edit) => ({ ...edit, folder })),
)
