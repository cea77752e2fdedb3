import { expect, test } from 'vitest'
import { parseDatabaseUrl, withDatabaseName } from './database-url.ts'

const hostsOf = (url: string) => parseDatabaseUrl(url).hosts.map(({ host, port }) => `${host} ${port}`)

test.each([
  ['postgres://u:p@h/d', ['h 5432']],
  ['postgresql://h:6000/d', ['h 6000']],
  ['postgres:///d', ['localhost 5432']],
  ['postgres://u@h1:6001,h2,[::1]:6003,[fd00::2]/d', ['h1 6001', 'h2 5432', '::1 6003', 'fd00::2 5432']],
  ['postgres://u@%2Fvar%2Frun%2Fpostgresql/d', ['/var/run/postgresql 5432']],
  ['postgres://%2Frun%2Fa:6001,%2Frun%2Fb:6002/d', ['/run/a 6001', '/run/b 6002']],
  ['postgres:///d?host=/run/postgresql&port=6000', ['/run/postgresql 6000']],
  ['postgres:///d?host=h1,h2&port=6000', ['h1 6000', 'h2 6000']],
  ['postgres:///d?host=h1,h2&port=6001,6002', ['h1 6001', 'h2 6002']],
])('%s leads to %j', (url, hosts) => {
  expect(hostsOf(url)).toEqual(hosts)
})

test('names and passwords are decoded, whatever they contain', () => {
  expect(
    parseDatabaseUrl('postgres://a%40b:p%3Aq%2F@r@h1,h2/my%20db?lock_timeout=5&options=-c%20geqo%3Doff'),
  ).toMatchObject({
    user: 'a@b',
    password: 'p:q/@r',
    database: 'my db',
    session: { lock_timeout: '5', options: '-c geqo=off' },
  })
  expect(parseDatabaseUrl('postgres:///?user=u&password=p%25&dbname=d')).toMatchObject({
    ...{ user: 'u', password: 'p%', database: 'd', session: {} },
  })
})

test('with several hosts, the default target is one that accepts writes', () => {
  expect(parseDatabaseUrl('postgres://h/d').target).toBe('any')
  expect(parseDatabaseUrl('postgres://h1,h2/d').target).toBe('read-write')
  for (const target of ['any', 'read-write', 'read-only', 'primary', 'standby', 'prefer-standby'])
    expect(parseDatabaseUrl(`postgres://h1,h2/d?target_session_attrs=${target}`).target).toBe(target)
})

const PLAIN = { mode: null, rootCert: null, cert: null, key: null, isDirect: false }
test.each([
  ['', PLAIN],
  ['sslmode=prefer', { ...PLAIN, mode: 'prefer' }],
  [
    'sslmode=verify-full&sslrootcert=/ca&sslcert=/c&sslkey=/k',
    { mode: 'verify-full', rootCert: '/ca', cert: '/c', key: '/k', isDirect: false },
  ],
  ['sslrootcert=system', { ...PLAIN, mode: 'verify-full', rootCert: 'system' }],
  ['sslmode=require&sslnegotiation=direct', { ...PLAIN, mode: 'require', isDirect: true }],
  ['sslmode=no-verify', { ...PLAIN, mode: 'require' }],
  ['ssl=true', { ...PLAIN, mode: 'verify-full' }],
  ['ssl=false', { ...PLAIN, mode: 'disable' }],
  ['channel_binding=prefer&gssencmode=disable&connect_timeout=3', PLAIN],
])('the parameters "%s" mean %j', (parameters, tls) => {
  const parsed = parseDatabaseUrl(`postgres://h/d?${parameters}`)
  expect(parsed.tls).toEqual(tls)
  expect(parsed.session).toEqual({})
})

test.each([
  ['nonsense', /must look like/],
  ['mysql://h/d', /must look like/],
  ['postgres://h', /must look like/],
  ['postgres://h:port/d', /must look like/],
  ['postgres://h:70000/d', /must look like/],
  ['postgres://h1,::1/d', /must look like/],
  ['postgres://u:s3cret#@h/d', /must look like/],
  ['postgres://u:s3cret%@h/d', /percent-encoded/],
  ['postgres:///d?host=h1,h2,h3&port=1,2', /one port/],
  ['postgres://u:s3cret@h1,h2/d?target_session_attrs=leader', /any, read-write, read-only/],
  ['postgres://u:s3cret@h/d?sslmode=true', /disable, allow, prefer, require, verify-ca, verify-full/],
  ['postgres://u:s3cret@h/d?sslmode=verify-ca', /requires sslrootcert/],
  ['postgres://u:s3cret@h/d?sslmode=require&sslrootcert=system', /requires sslmode=verify-full/],
  ['postgres://u:s3cret@h/d?sslcert=/c', /sslcert and sslkey together/],
  ['postgres://u:s3cret@h/d?sslnegotiation=direct', /sslmode=require/],
  ['postgres://u:s3cret@h/d?channel_binding=require', /channel_binding=require, which Sealpost does not support/],
  ['postgres://u:s3cret@h/d?sslcrl=/crl', /sslcrl, which Sealpost does not support/],
])('%s is refused with one sentence, without its password', (url, sentence) => {
  let error: unknown
  try {
    parseDatabaseUrl(url)
  } catch (thrown) {
    error = thrown
  }
  expect(error).toMatchObject({ code: 'db_url_invalid', message: expect.stringMatching(sentence) })
  expect((error as Error).message).not.toContain('s3cret')
})

test('a URL with another database name keeps everything else', () => {
  expect(withDatabaseName('postgres://u:p@h1:1,h2/old?sslmode=require', 'n w')).toBe(
    'postgres://u:p@h1:1,h2/n%20w?sslmode=require',
  )
})
