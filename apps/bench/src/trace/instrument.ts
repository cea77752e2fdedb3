/** Makes every function report its calls, so that a trace knows each caller, even across `await`. */
import { type ParserOptions, parse } from '@babel/parser'

/** Receives reports, as the global `__trace`. */
export interface Reporter {
  /** Call when a function is entered. @returns its frame */
  enter(functionId: number): CallFrame
  leave(frame: CallFrame): void
  /** Takes the frame off the stack until its awaited value has arrived. */
  suspend<T>(frame: CallFrame, value: T): T
  resume<T>(frame: CallFrame, value: T): T
}

export interface CallFrame {
  /** The call's number; -1 if nothing is recorded. */
  readonly call: number
}

/**
 * Returns a reporter that maintains the stack. `entered` returns a call's number; -1 while off. After a rejected await,
 * leaving a frame has no effect.
 */
export function stackReporter(entered: (functionId: number, caller: CallFrame | undefined) => number) {
  const stack: CallFrame[] = []
  const leave = (frame: CallFrame) => {
    if (stack.includes(frame)) stack.length = stack.lastIndexOf(frame)
  }
  const reporter: Reporter = {
    enter(functionId) {
      const frame = { call: entered(functionId, stack.at(-1)) }
      stack.push(frame)
      return frame
    },
    leave,
    suspend(frame, value) {
      leave(frame)
      return value
    },
    resume(frame, value) {
      stack.push(frame)
      return value
    },
  }
  return { reporter, stack }
}

interface Node {
  readonly type: string
  readonly start: number
  readonly end: number
}

interface Edit {
  readonly at: number
  readonly text: string
}

const FUNCTIONS = new Set([
  ...['FunctionDeclaration', 'FunctionExpression', 'ArrowFunctionExpression'],
  ...['ObjectMethod', 'ClassMethod', 'ClassPrivateMethod'],
])
const OPTIONS: ParserOptions = { sourceType: 'module', plugins: ['typescript', 'explicitResourceManagement'] }

/** Returns the instrumented source. @param nameFunction - called per function, in source order; returns its id */
export function instrument(source: string, nameFunction: (name: string) => number): string {
  const edits: Edit[] = []
  const add = (at: number, text: string) => edits.push({ at, text })
  visit(parse(source, OPTIONS).program as unknown as Node, 'module', false)
  // The sort is stable, so outer functions' insertions stay first.
  edits.sort((a, b) => a.at - b.at)
  let code = ''
  let done = 0
  for (const { at, text } of edits) {
    code += source.slice(done, at) + text
    done = at
  }
  return code + source.slice(done)

  function visit(node: Node, name: string, isInFunction: boolean): void {
    if (node.type.startsWith('TS') && !RUNTIME_TS.has(node.type)) return
    if (FUNCTIONS.has(node.type)) return visitFunction(node as FunctionNode, name)
    const isWait = isInFunction && (node.type === 'AwaitExpression' || node.type === 'YieldExpression')
    const { argument } = node as Node & { argument?: Node | null }
    if (isWait && argument) {
      add(node.start, '__trace.resume(__frame, ')
      add(argument.start - parenthesesBefore(argument), '__trace.suspend(__frame, ')
    }
    for (const [key, child] of childrenOf(node)) visit(child, nameOf(node, key, child) ?? name, isInFunction)
    if (isWait && argument) add(node.end, '))')
  }

  function visitFunction(node: FunctionNode, name: string): void {
    const { body, params } = node
    const own = node.id?.name ?? keyOf(node) ?? name
    for (const parameter of params) visit(parameter, own, false)
    if (!body) return // overloads have no body
    const enter = `const __frame = __trace.enter(${nameFunction(own)}); try {`
    const leave = '} finally { __trace.leave(__frame) }'
    if (body.type === 'BlockStatement') {
      add(body.start + 1, enter)
      for (const [, child] of childrenOf(body)) visit(child, own, true)
      add(body.end - 1, leave)
      return
    }
    const arrow = source.lastIndexOf('=>', body.start) + 2
    add(arrow, `{ ${enter} return (`)
    visit(body, own, true)
    add(node.end, `) ${leave} }`)
  }
}

/** Type nodes that contain running functions. */
const RUNTIME_TS = new Set([
  ...['TSAsExpression', 'TSSatisfiesExpression', 'TSNonNullExpression', 'TSTypeAssertion', 'TSParameterProperty'],
  ...['TSInstantiationExpression', 'TSEnumDeclaration'],
])

interface FunctionNode extends Node {
  readonly id?: { readonly name: string } | null
  readonly params: readonly Node[]
  readonly body?: Node
}

interface KeyNode {
  readonly name?: string
  readonly value?: string
  readonly id?: { readonly name: string }
}

function* childrenOf(node: Node): Generator<[key: string, child: Node]> {
  for (const [key, value] of Object.entries(node)) {
    if (key === 'loc' || key.endsWith('Comments')) continue
    for (const child of Array.isArray(value) ? value : [value]) if (isNode(child)) yield [key, child]
  }
}

const isNode = (value: unknown): value is Node =>
  typeof value === 'object' && value !== null && typeof (value as Partial<Node>).type === 'string'

function keyOf(node: Node): string | undefined {
  const { key } = node as Node & { key?: KeyNode }
  return key?.name ?? key?.id?.name ?? key?.value
}

/** Returns a function's name: its variable's, property's or field's. */
function nameOf(parent: Node, key: string, child: Node): string | undefined {
  if (key === 'init' && parent.type === 'VariableDeclarator') return (parent as Node & { id: KeyNode }).id.name
  if (key === 'value') return keyOf(parent)
  return FUNCTIONS.has(child.type) ? undefined : keyOf(child)
}

/** Returns the length of the parentheses before a node, which it excludes. */
function parenthesesBefore(node: Node): number {
  const { extra } = node as Node & { extra?: { parenthesized?: boolean; parenStart?: number } }
  return extra?.parenthesized ? node.start - extra.parenStart! : 0
}
