import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test as base, expect } from 'vitest'

const PYTHON = 'python3'
const CHECK = join(import.meta.dirname, 'ratchet-check/check.py')
const VECTORS = join(import.meta.dirname, '../packages/protocol/vectors/ratchet.json')

/** Returns why the check can't run, or null. */
function missing(): string | null {
  const imports = 'import doubleratchet, x3dh, xeddsa, nacl.bindings, cryptography'
  if (!Bun.which(PYTHON)) return `${PYTHON} is not installed`
  const found = Bun.spawnSync([PYTHON, '-c', imports], { stderr: 'pipe' })
  return found.success ? null : 'the packages of scripts/ratchet-check/requirements.txt are not installed'
}

const reason = missing()
if (reason) process.stderr.write(`skipped: the check of ratchets with DoubleRatchet and X3DH: ${reason}\n`)
const test = base.skipIf(reason !== null)

async function check(path: string) {
  const python = Bun.spawn([PYTHON, CHECK, path], { stdout: 'pipe', stderr: 'pipe' })
  const [output, errors] = await Promise.all([new Response(python.stdout).text(), new Response(python.stderr).text()])
  return { output, errors, status: await python.exited }
}

test('the vectors of ratchets agree with DoubleRatchet and X3DH from PyPI', async () => {
  const { output, errors, status } = await check(VECTORS)
  expect({ errors, status }).toEqual({ errors: '', status: 0 })
  expect(output).toMatch(/^suite1: X3DH agrees; 7 of 10 messages agree with DoubleRatchet/m)
  expect(output).toMatch(/^suite2LastResort: X3DH agrees; 7 of 10/m)
})

test('the check with DoubleRatchet and X3DH notices a changed secret, key or ciphertext', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sealpost-ratchet-check-'))
  try {
    const { suite1 } = JSON.parse(await readFile(VECTORS, 'utf8'))
    const flip = (hex: string) => `${hex.slice(0, -1)}${hex.endsWith('0') ? '1' : '0'}`
    for (const text of [suite1.agreement.x3dhSecret, suite1.messages[3].messageKey, suite1.messages[5].bytes]) {
      const path = join(folder, 'changed.json')
      await writeFile(path, (await readFile(VECTORS, 'utf8')).replaceAll(text, flip(text)))
      expect((await check(path)).status).not.toBe(0)
    }
  } finally {
    await rm(folder, { recursive: true })
  }
})
