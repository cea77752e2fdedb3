/** `sealpost mesh` shows the cell of a mesh, and moves a mesh to another cell. */
import { readFile } from 'node:fs/promises'
import {
  type Cell,
  type CellLocation,
  findLocations,
  type MeshLocation,
  type MoveOrder,
  type MovePhase,
  moveEndpoint,
  moveMesh,
  moveSource,
  parseCells,
  undoMeshMove,
} from '@sealpost/mesh-move'
import { DatabaseError } from '@sealpost/pg'
import { type MeshId, OperatingError } from '@sealpost/std'
import { Command } from 'commander'
import { parseHex } from '../settings.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'

interface MoveOptions {
  readonly to: string
  readonly undo?: true
}

export function meshCommand(run: RunAction): Command {
  return new Command('mesh')
    .description('For operators: move meshes between cells. The commands need CELLS_FILE.')
    .addCommand(moveCommand(run))
    .addCommand(showCommand(run))
    .addHelpText('after', examples('sealpost mesh show 0f…', 'sealpost mesh move 0f… --to north'))
}

function moveCommand(run: RunAction): Command {
  return new Command('move')
    .description('Move a mesh with its queued messages to another cell. An interrupted move resumes.')
    .argument('<MESH>', 'the id of the mesh (32 hex digits)', parseHex(16))
    .requiredOption('--to <CELL>', 'the target cell')
    .option('--undo', 'cancel the move, which is possible until the mesh has left its cell')
    .addHelpText('after', examples('sealpost mesh move 0f… --to north', 'sealpost mesh move 0f… --to north --undo'))
    .action(run(move))
}

function showCommand(run: RunAction): Command {
  return new Command('show')
    .description('Print the state that a mesh has in each cell')
    .argument('<MESH>', 'the id of the mesh (32 hex digits)', parseHex(16))
    .addHelpText('after', examples('sealpost mesh show 0f…', 'sealpost mesh show 0f… --json'))
    .action(run(show))
}

async function move(shell: Shell, { to, undo }: MoveOptions, mesh: MeshId): Promise<void> {
  const cells = await readCells(shell)
  const destination = moveEndpoint(cells, to)
  const from = moveSource(await findLocations(cells, mesh), to)
  if (from === null)
    return shell.output.result({ meshId: mesh, cell: to, moved: false }, () => `the mesh is already in ${to}`)
  const onPhase = (phase: MovePhase) => shell.output.info(PHASES[phase])
  const order: MoveOrder = { meshId: mesh, from: moveEndpoint(cells, from), to: destination, onPhase }
  await (undo ? takeBack(shell, order) : bring(shell, order))
}

const PHASES: Readonly<Record<MovePhase, string>> = {
  frozen: 'frozen: senders hold new messages',
  copied: 'copied',
  left: 'left: the move can no longer be undone',
  arrived: 'arrived: the target cell serves its peers',
  done: 'deleted from the source cell',
  undone: 'undone',
}

async function bring({ output }: Shell, order: MoveOrder): Promise<void> {
  const { meshId: mesh, from, to } = order
  const report = await moveMesh(order)
  const { rows, pauseMs, isResumed } = report
  await output.result(
    { meshId: mesh, from: from.cell, cell: to.cell, moved: true, ...report },
    () =>
      `moved from ${from.cell} to ${to.cell}: ${rows} rows, a pause of ${pauseMs} ms${isResumed ? ', including the interruption' : ''}`,
  )
}

async function takeBack({ output }: Shell, order: MoveOrder): Promise<void> {
  const { wasActive, isCleared } = await undoMeshMove(order)
  const { from, to } = order
  if (!isCleared) output.warn(`${to.cell} did not respond: the next move of the mesh removes its rows there`)
  await output.result({ meshId: order.meshId, cell: from.cell, wasActive, isCleared }, () =>
    wasActive ? `nothing to undo: the mesh is in ${from.cell}` : `undone: the mesh is in ${from.cell}`,
  )
}

async function show(shell: Shell, _: object, mesh: MeshId): Promise<void> {
  const found = await findLocations(await readCells(shell), mesh)
  const known = found.filter(({ location }) => location !== null)
  if (known.length === 0) throw new OperatingError('mesh_unknown', 'No cell has this mesh.')
  await shell.output.results(known.map(forPrograms), () =>
    shell.output.table(
      ['CELL', 'MESH'],
      known.map(({ cell, location }) => [cell, stateOf(location!)]),
    ),
  )
}

function forPrograms({ cell, location }: CellLocation): object {
  if (location === null || location instanceof DatabaseError) return { cell, state: 'silent' }
  const { name, movedTo, move: its } = location
  return { cell, state: wordFor(location), name, movedTo, move: its }
}

function stateOf(location: MeshLocation | DatabaseError): string {
  if (location instanceof DatabaseError) return 'the database did not respond'
  const { movedTo, move: its } = location
  if (!location.isFrozen) return 'here'
  if (its?.side === 'source' && its.phase !== 'done') return `moving to ${its.cell}: ${its.phase}`
  return movedTo === null ? 'moving here' : `moved to ${movedTo}`
}

function wordFor({ isFrozen, movedTo }: MeshLocation): string {
  if (!isFrozen) return 'here'
  return movedTo === null ? 'moving' : 'elsewhere'
}

async function readCells({ settings }: Shell): Promise<Cell[]> {
  const path = settings.cellsFile()
  const text = await readFile(path, 'utf8').catch((cause) => {
    throw new OperatingError('file_missing', `Can't read the cells file: ${path}`, { cause })
  })
  return parseCells(text)
}
