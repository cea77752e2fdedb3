/**
 * Fuzzes the inputs of this package from a seed: invites, certificates, heir statements, recoveries, statements of groups and spaces, confirmations, entries,
 * records, key bindings, envelopes, prepared sends, notes, key files and addresses. Half of the inputs have faults in
 * their bytes; the others have
 * validly signed or sealed faults, as a hostile member could create.
 */
import { type EnvelopeId, OperatingError, type Random, seededRandom, toHex } from '@sealpost/std'
import { bytesOf, faultyBytes, faultyJson, faultyText, pick } from '@sealpost/std/testing'
import { concatBytes, context } from '../byte-fields.ts'
import { readConfirmation, signConfirmation } from '../envelope/confirmation.ts'
import { openEnvelope, Sealer, sealEnvelope } from '../envelope/envelope.ts'
import { encodeNote, readNote } from '../envelope/inner-header.ts'
import { readPreparedSend, signPreparedSend } from '../envelope/prepared-send.ts'
import { normalizeAuthority, signEnrolment, type Transcript } from '../handshake/transcript.ts'
import { bindBoxKey, checkKeyBinding } from '../keys/key-binding.ts'
import { isLocked, plainText, readText } from '../keys/key-file.ts'
import { type Identity, SIGNATURE_BYTES, sign } from '../keys/keys.ts'
import { signAdmission, signAdmissionGrant } from '../members/admission.ts'
import {
  certificateOf,
  readAdmissionClaim,
  readCertificate,
  readEndorsement,
  readRevocation,
  signEndorsement,
  signRevocation,
} from '../members/certificate.ts'
import { createInvite, parseInvite, readInvite } from '../members/enrolment.ts'
import { changeGroup, createGroup, readGroup } from '../members/group.ts'
import { readHeirs, readRecovery, signHeirs, signRecovery } from '../members/recovery.ts'
import { sodium } from '../sodium.ts'
import { NO_ENTRY, openEntry, openRecord, readEntry, readRecord, sealEntry, sealRecord } from '../spaces/content.ts'
import { readSpace, signSpace } from '../spaces/space.ts'
import { correspondent, MESH, peerNumber } from './fixtures.ts'

export interface IdentityReport {
  readonly accepted: number
  readonly refused: number
}

/** Reads a hostile input. Returns whether it was accepted. Throws if a rule is broken. */
type Target = (random: Random) => boolean
/** The codes of errors that may be thrown, for a user's mistakes only. */
const CODES = ['invite_malformed', 'authority_malformed']

/** Created once the library is ready. */
let pair: readonly [Identity, Identity] | undefined
const people = () => (pair ??= [peerNumber(1), peerNumber(2)])
const URL_TEXT = 'wss://broker.example/v1/ws'

/**
 * Runs the fuzzer. Await `ready()` first. @throws Error with the seed, target and number of the first input that breaks
 * a rule
 */
export function fuzzIdentity(options: { seed: number; inputs: number }): Readonly<Record<string, IdentityReport>> {
  const random = seededRandom(options.seed)
  const reports: Record<string, IdentityReport> = {}
  for (const [name, target] of Object.entries(targets())) {
    let accepted = 0
    for (let n = 0; n < options.inputs; n++) {
      try {
        if (target(random)) accepted += 1
      } catch (cause) {
        throw new Error(`seed ${options.seed}, ${name}, input ${n} of ${options.inputs}`, { cause })
      }
    }
    reports[name] = { accepted, refused: options.inputs - accepted }
  }
  return reports
}

function targets(): Readonly<Record<string, Target>> {
  return {
    invites: bytesTarget(inviteSamples(), 'sealpost-invite/1', (bytes) => parseInvite(bytes)?.bytes ?? null),
    statements: bytesTarget(groupSamples(), 'sealpost-group/1', (bytes) => readGroup(bytes)?.bytes ?? null),
    confirmations: confirmations(),
    ...spaceTargets(),
    'prepared sends': bytesTarget(preparedSamples(), 'sealpost-prepared-send/1', (bytes) =>
      readPreparedSend(bytes) ? bytes : null,
    ),
    'texts of invites': inviteTexts(),
    ...certificateTargets(),
    bindings: bindings(),
    envelopes: envelopes(),
    notes,
    'key files': keyFiles(),
    addresses,
  }
}

function inviteSamples(): Uint8Array[] {
  const [alice, bob] = people()
  return [1, 7].map((usesMax) => {
    const terms = { meshId: MESH, url: URL_TEXT, brokerKey: bob.signing.publicKey, usesMax, notAfterMs: 4e12 }
    return readInvite(createInvite(alice.signing, terms)).bytes
  })
}

function certificateTargets(): Readonly<Record<string, Target>> {
  const [{ signing: admin }, { signing: member }] = people()
  const terms = { meshId: MESH, peerKey: member.publicKey, name: 'ben', role: 'member', atMs: 5 } as const
  const endorsements = [terms, { ...terms, role: 'admin' } as const].map((each) => signEndorsement(admin, each))
  const revocation = { meshId: MESH, number: 2, previous: '11'.repeat(32), peerKey: member.publicKey, atMs: 5 }
  const certificate = certificateSample()
  return {
    endorsements: bytesTarget(endorsements, 'sealpost-endorsement/1', (bytes) => {
      const found = readEndorsement(bytes)
      return found && signEndorsement(admin, found)
    }),
    revocations: bytesTarget([signRevocation(admin, revocation)], 'sealpost-revocation/1', (bytes) => {
      const found = readRevocation(bytes)
      return found && signRevocation(admin, found)
    }),
    heirs: bytesTarget([heirSample()], 'sealpost-heirs/1', (bytes) => {
      const found = readHeirs(bytes)
      return found && signHeirs(admin, found)
    }),
    certificates: frozenTarget('certificate', { good: certificate, other: endorsements[0]!, read: readCertificate }),
    recoveries: frozenTarget('recovery', { good: recoverySample(), other: heirSample(), read: readRecovery }),
    admissions: frozenTarget('admission', { good: admissionSample(), other: certificate, read: readAdmissionClaim }),
  }
}

interface Frozen {
  readonly good: Uint8Array
  readonly other: Uint8Array
  readonly read: (bytes: Uint8Array) => object | null
}

/** Accepts a statement with several signers only if no byte is changed. */
function frozenTarget(name: string, { good, other, read }: Frozen): Target {
  return (random) => {
    const bytes = random.chance(0.1) ? good : faultyBytes(random, good, other)
    if (!read(bytes)) return false
    if (toHex(bytes) !== toHex(good)) throw new Error(`a changed ${name} is accepted`)
    return true
  }
}

function heirSample(): Uint8Array {
  const [{ signing: user }, { signing: device }] = people()
  return signHeirs(user, { meshId: MESH, epoch: 1, heirs: [{ device: device.publicKey, label: 'phone' }] })
}

const recoverySample = (): Uint8Array =>
  signRecovery({ heir: people()[1].signing, successor: peerNumber(3).signing }, { heirs: heirSample(), atMs: 5 })

function admissionSample(): Uint8Array {
  const [{ signing: issuer }, { signing: member }] = people()
  const { signing } = peerNumber(3)
  const grant = signAdmissionGrant(issuer, { meshId: MESH, role: 'member', admissionKey: signing.publicKey })
  return signAdmission(member, { grant, signing }, { name: 'ben', atMs: 5 })
}

function certificateSample(): Uint8Array {
  const [invite] = inviteSamples() as [Uint8Array]
  const member = people()[1].signing
  const [nonce, id] = [new Uint8Array(32), new Uint8Array(16)]
  const transcript: Transcript = {
    ...{ version: 1, versionsOffered: [1], authority: 'broker.example:443', brokerKey: member.publicKey },
    ...{ meshId: MESH, peerKey: member.publicKey, serverNonce: nonce, clientNonce: nonce, connectionId: id },
    ...{ issuedAtMs: 7, capabilities: [] },
  }
  const signed = { invite, name: 'ben', bindingSignature: new Uint8Array(SIGNATURE_BYTES) }
  return certificateOf({ ...signed, transcript, signature: signEnrolment(member, transcript, signed) })
}

function preparedSamples(): Uint8Array[] {
  const [alice, bob] = people()
  const [sender, recipient] = [alice.signing.publicKey, bob.signing.publicKey]
  const envelopeId = '019b76da80007000800000000000000a' as EnvelopeId
  const times = { ttlSeconds: 60, notBeforeMs: 0, preparedAtMs: 1, expiresAtMs: 60_000 }
  const send = { ...times, meshId: MESH, sender, recipient, envelopeId, priority: 1, envelope: new Uint8Array(99) }
  return [0, 21].map((length) => signPreparedSend(alice.signing, { ...send, terms: new Uint8Array(length) }))
}

function groupSamples(): Uint8Array[] {
  const [alice] = people()
  const members = people().map(({ signing }) => signing.publicKey)
  const first = createGroup(alice.signing, { meshId: MESH, name: 'crew', members })
  return [first, changeGroup(alice.signing, first, { members: members.slice(1) })].map(({ bytes }) => bytes)
}

function confirmations(): Target {
  const [{ signing }, { signing: sender }] = people()
  const route = { meshId: MESH, sender: sender.publicKey, recipient: signing.publicKey }
  const envelopeId = 'ab'.repeat(16) as EnvelopeId
  const said = {
    ...route,
    envelopeId,
    contentHash: 'cd'.repeat(32),
    outcome: 'rejected',
    reason: 'no',
    atMs: 1,
  } as const
  const samples = [said, { ...said, outcome: 'read', reason: '' } as const]
  const read = (bytes: Uint8Array) => {
    const found = readConfirmation(bytes)
    return found && signConfirmation(signing, found)
  }
  return bytesTarget(
    samples.map((each) => signConfirmation(signing, each)),
    'sealpost-confirmation/1',
    read,
  )
}

/** Reads state and history. An entry or record with a valid signature is also opened. */
function spaceTargets(): Readonly<Record<string, Target>> {
  const [{ signing }] = people()
  const place = { meshId: MESH, spaceId: MESH, keyEpoch: 1 }
  const [nameKey, spaceKey] = [new Uint8Array(32).fill(1), new Uint8Array(32).fill(2)]
  const keys = { nameKey, spaceKey }
  const bounds = { historyFor: 'all', keepSeconds: 60, keepBytes: 1e6, keepsMessages: true } as const
  const space = signSpace(signing, { meshId: MESH, spaceId: MESH, owner: signing.publicKey, epoch: 1, ...bounds })
  const draft = { ...place, key: 'topic', value: new Uint8Array(9), revision: 1, prevHash: NO_ENTRY, sentAtMs: 1 }
  const entry = sealEntry(signing, draft, keys)
  const second = sealEntry(signing, { ...draft, revision: 2, prevHash: entry.hash, value: null }, keys)
  const at = { streamId: 'ab'.repeat(16), seq: 1, prevHash: NO_ENTRY, ticket: new Uint8Array(64), sentAtMs: 1 }
  const record = sealRecord(signing, { ...place, ...at, note: { thread: 'ab'.repeat(16) } }, spaceKey)
  return {
    spaces: bytesTarget([space.bytes], 'sealpost-space/1', (bytes) => readSpace(bytes)?.bytes ?? null),
    entries: bytesTarget([entry.bytes, second.bytes], 'sealpost-entry/1', (bytes) => {
      const read = readEntry(bytes)
      if (read) openEntry(read, keys)
      return read?.bytes ?? null
    }),
    records: bytesTarget([record.bytes], 'sealpost-record/1', (bytes) => {
      const read = readRecord(bytes)
      if (read) openRecord(read, spaceKey)
      return read?.bytes ?? null
    }),
  }
}

/** Returns a target that reads `fields || signature`. An accepted value must encode back to the same bytes. */
function bytesTarget(
  samples: readonly Uint8Array[],
  signedAs: string,
  read: (bytes: Uint8Array) => Uint8Array | null,
): Target {
  return (random) => {
    const [good, other] = [pick(random, samples), pick(random, samples)]
    const bytes = random.chance(0.5) ? faultyBytes(random, good, other) : signedAnew(random, good, other, signedAs)
    const found = read(bytes)
    if (found && toHex(found) !== toHex(bytes)) throw new Error('accepted as something else')
    return found !== null
  }
}

function signedAnew(random: Random, good: Uint8Array, other: Uint8Array, signedAs: string): Uint8Array {
  const fields = faultyBytes(random, good.subarray(0, -SIGNATURE_BYTES), other)
  return concatBytes([fields, sign(people()[0].signing, concatBytes([context(signedAs), fields]))])
}

function inviteTexts(): Target {
  const [bytes] = inviteSamples() as [Uint8Array]
  const text = `sealpost1:${sodium.to_base64(bytes, sodium.base64_variants.URLSAFE_NO_PADDING)}`
  return (random) => {
    const hostile = random.chance(0.1) ? text : faultyText(random, text)
    return isRead(() => readInvite(hostile), hostile)
  }
}

const addresses: Target = (random) => {
  const text = pick(random, [URL_TEXT, 'broker.example:443', 'ws://[::1]:7450/v1/ws', 'https://bücher.example'])
  const hostile = random.chance(0.5)
    ? faultyText(random, text)
    : String.fromCharCode(...bytesOf(random, random.below(40)))
  return isRead(() => {
    const authority = normalizeAuthority(hostile)
    if (normalizeAuthority(authority) !== authority) throw new Error('an authority has two spellings')
  }, hostile)
}

function isRead(read: () => unknown, hostile: string): boolean {
  try {
    read()
    return true
  } catch (error) {
    if (!(error instanceof OperatingError) || !CODES.includes(error.code)) throw error
    if (hostile.length > 8 && error.message.includes(hostile))
      throw new Error('a refusal repeats its input', { cause: error })
    return false
  }
}

const STRANGE_NUMBERS = [-1, 0.5, Number.NaN, 2 ** 32, 2 ** 53, Number.POSITIVE_INFINITY, -0]

function bindings(): Target {
  const [, bob] = people()
  const good = bindBoxKey(bob, MESH, 4e12)
  return (random) => {
    const changed = { ...good, [pick(random, ['boxKey', 'signature'] as const)]: bytesOf(random, random.below(80)) }
    const counted = { ...changed, [pick(random, ['boxEpoch', 'notAfterMs'] as const)]: pick(random, STRANGE_NUMBERS) }
    const hostile = pick(random, [good, changed, counted])
    const verdict = checkKeyBinding(hostile, { meshId: MESH, peerKey: bob.signing.publicKey, nowMs: 1 })
    if (verdict === 'ok' && hostile !== good) throw new Error('a forged binding was believed')
    return verdict === 'ok'
  }
}

/** Returns a target for envelopes, half of which open but contain an invalid header, note or length. */
function envelopes(): Target {
  const [alice, bob] = people()
  const [sealer, reader] = people().map((identity) => new Sealer({ identity, meshId: MESH })) as [Sealer, Sealer]
  const envelopeId = 'ab'.repeat(16) as Parameters<typeof openEnvelope>[2]['envelopeId']
  const draft = { to: correspondent(bob), envelopeId, stream: null, sentAtMs: 1, body: new Uint8Array(20) }
  const sealed = [sealEnvelope(sealer, draft), sealEnvelope(sealer, { ...draft, note: { thread: 'cd'.repeat(16) } })]
  const key = sodium.crypto_box_beforenm(bob.box.publicKey, alice.box.secretKey)
  const opened = sealed.map((bytes) =>
    sodium.crypto_box_open_easy_afternm(bytes.subarray(24), bytes.subarray(0, 24), key),
  )
  const nonce = new Uint8Array(24)
  return (random) => {
    const plaintext = () => faultyBytes(random, pick(random, opened), pick(random, opened))
    const hostile = random.chance(0.5)
      ? faultyBytes(random, pick(random, sealed), pick(random, sealed))
      : concatBytes([nonce, sodium.crypto_box_easy_afternm(plaintext(), nonce, key)])
    return openEnvelope(reader, hostile, { from: correspondent(alice), envelopeId }).ok
  }
}

const notes: Target = (random) => {
  const good = encodeNote({ thread: 'ab'.repeat(16), isRequest: true, group: 'cd'.repeat(16) as never, groupEpoch: 3 })
  const text = new TextDecoder().decode(good)
  const hostile = random.chance(0.5)
    ? faultyBytes(random, good, good)
    : new TextEncoder().encode(faultyJson(random, text))
  const note = readNote(hostile)
  if (note && !readNote(encodeNote(note))) throw new Error('accepted, but it can not be said again')
  return note !== null
}

function keyFiles(): Target {
  const [alice, bob] = people()
  const enrolment = { meshId: MESH, authority: 'broker.example:443', brokerKey: bob.signing.publicKey }
  const good = plainText({ kind: 'peer', identity: alice, formerBoxKeys: [bob.box], enrolment })
  return (random) => {
    const contents = readText(random.chance(0.7) ? faultyJson(random, good) : faultyText(random, good))
    if (contents && !isLocked(contents) && !readText(plainText(contents)))
      throw new Error('accepted, but it can not be kept')
    return contents !== null
  }
}
