import { expect, test } from 'vitest'
import { sqlStatement } from './prepared.ts'

test('a statement numbers its parameters by its signature, and leaves casts and slices alone', () => {
  const statement = sqlStatement(
    `mesh uuid, ids bigint[],
      seconds float8`,
    `select (:ids)[a.first:b.last], '{1}'::int[] from a where mesh_id = :mesh and :seconds > 1 and id = any (:ids)`,
  )
  expect(statement.text).toBe(
    `select ($2::bigint[])[a.first:b.last], '{1}'::int[] from a where mesh_id = $1::uuid and $3::float8 > 1 and id = any ($2::bigint[])`,
  )
  expect(statement.bind({ seconds: 2, ids: '{1}', mesh: 'm' }).parameters).toEqual(['m', '{1}', 2])
})

test('a name without a parameter, and a parameter without a name, fail when the module loads', () => {
  expect(() => sqlStatement('mesh uuid', 'select :mesh, :peer')).toThrow(':peer')
  expect(() => sqlStatement('mesh uuid, peer int', 'select :mesh')).toThrow('peer')
})
