/** Reads the examples in the docstrings of the published declarations. */

export interface Documented {
  /** The name, such as `connect` or `Peer.send`. */
  readonly name: string
  /** The example; null if the docstring has none. */
  readonly example: string | null
}

/** Functions that the SDK calls, not applications. */
const PORTS = ['MemoryStore.', 'OnceStore.', 'FileUploadLog.', 'State.checkNote', 'State.sealRecord', 'State.recorded']
const CLASS = /^(?:export )?declare (?:abstract )?class (\w+)/
const FUNCTION = /^export declare (?:function|const) (\w+)/
const METHOD = /^ {4}(?!constructor)(\w+)\(/
const ACCESSOR = /^ {4}(?:get |readonly |\[)/

/** Returns the public functions and methods, and accessors with an example. */
export function documentedIn(declarations: string): Documented[] {
  const found: Documented[] = []
  let className = ''
  let comment: string[] = []
  for (const line of declarations.split('\n')) {
    const text = line.trim()
    if (text.startsWith('/**')) comment = []
    if (text.startsWith('*') || text.startsWith('/**')) {
      comment.push(text)
      continue
    }
    const owner = CLASS.exec(line)?.[1]
    if (owner) className = owner
    const method = METHOD.exec(line)?.[1]
    const name = FUNCTION.exec(line)?.[1] ?? (method && `${className}.${method}`)
    const example = exampleIn(comment)
    if (name && !PORTS.some((port) => name.startsWith(port))) found.push({ name, example })
    else if (example !== null && ACCESSOR.test(line)) found.push({ name: `${className}.${text}`, example })
    if (line === '}') className = ''
    comment = []
  }
  return found.filter(({ name }) => !name.startsWith('.'))
}

const exampleIn = (comment: readonly string[]): string | null =>
  /@example (.+?)(?: \*\/)?$/m.exec(comment.join('\n'))?.[1] ?? null

const VALUES = `declare const place: Pick<ConnectOptions, 'url' | 'brokerKey' | 'meshId' | 'identity'>
declare const peer: Peer, ben: PeerKey, device: PeerKey, identity: Identity, membership: Membership, next: BoxKeys
declare const invite: string, inviteId: InviteId, groupId: GroupId, poolId: PoolId, group: Group, pool: Pool
declare const message: Message, text: string, store: PeerStore, once: OnceStore, keyEpochs: StoredKeyEpochs, state: State, entry: StateEntry
declare const files: Attachments, attachment: Attachment, sent: Attachment, votes: Reactions
declare const keyFile: PeerKeyFile, contents: KeyFile, session: MemberSession
declare const confirmations: Confirmations, envelopeId: EnvelopeId, members: MemberProofs, root: PeerKey, rootKeys: SigningKeys
declare const recoveries: Recoveries, successor: Identity, brokerKey: PeerKey, checkpointOfBen: Uint8Array, pools: Pools
declare const show: (message: Message) => void
`

/** Returns a module with all examples, for the compiler. `entries` maps specifiers to declarations. */
export function programOf(documented: readonly Documented[], entries: ReadonlyMap<string, string>): string {
  const seen = new Set<string>()
  const imports = [...entries].map(([specifier, text]) => {
    const names = /\{([\s\S]*)\}/
      .exec(text)![1]!
      .split(',')
      .map((name) => name.trim())
    const own = names.filter((name) => name !== '' && !seen.has(name.replace('type ', '')))
    for (const name of own) seen.add(name.replace('type ', ''))
    return `import { ${own.join(', ')} } from '${specifier}'`
  })
  const bodies = documented.flatMap(({ example }, i) =>
    example === null ? [] : [`export async function example${i}() {\n  ${example}\n}`],
  )
  return `${imports.join('\n')}\n${VALUES}${bodies.join('\n')}\n`
}
