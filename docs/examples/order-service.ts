import { connect } from '@sealpost/sdk'
import { readKeyFile } from '@sealpost/sdk/key-file'
import { prepareSend } from '@sealpost/sdk/prepare'
import postgres from 'postgres'

async function peer(name: string) {
  const { contents } = await readKeyFile(`.sealpost/${name}.json`)
  if (contents.kind !== 'peer' || !contents.enrolment) throw new Error('run `bun scripts/dev.ts` first')
  return connect({ url: `ws://${contents.enrolment.authority}`, identity: contents.identity, ...contents.enrolment })
}

const [shop, warehouse] = await Promise.all([peer('alice'), peer('bob')])
const sql = postgres(process.env.DATABASE_URL!, { onnotice: () => undefined })
await sql`create schema if not exists shop`
await sql`create table if not exists shop.orders (item text not null check (item <> ''), message uuid not null)`

async function order(item: string) {
  const { request } = await prepareSend(shop, warehouse.key, `pack ${item}`) // seals and signs, sends nothing
  await sql.begin(async (tx) => {
    const [sent] = await tx`select sealpost.send(${request}) as id` // the broker sends it after the commit
    await tx`insert into shop.orders values (${item}, ${sent!.id})`
  })
}

await order('') // the table refuses the order, so the transaction rolls back and nothing is sent
  .catch((error: Error) => console.log(`shop: ${error.message}`))
await order('one chair')
for await (const message of warehouse) {
  console.log(`warehouse: ${message.text()}`)
  message.settle()
  const [stored] = await sql`select item from shop.orders where message = ${message.envelopeId}`
  console.log(`shop: ordered ${stored!.item}`)
  break
}
await Promise.all([shop.close(), warehouse.close(), sql.end()])
