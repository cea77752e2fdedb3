import { fromHex, type MeshId, type PeerKey, toHex } from '@sealpost/std'
import { beforeAll, describe, expect, test } from 'vitest'
import {
  certificateOf,
  createInvite,
  type Identity,
  type InviteRole,
  MembershipProofs,
  NO_REVOCATION,
  nameRoot,
  readAnyInvite,
  readCertificate,
  readEndorsement,
  readInvite,
  readRevocation,
  ready,
  revocationHash,
  type SigningKeys,
  signDevice,
  signEndorsement,
  signEnrolment,
  signHeirs,
  signIdentityRotation,
  signingKeysFromSeed,
  signRecovery,
  signRemoval,
  signRevocation,
  signVoucher,
  type Transcript,
} from '../index.ts'
import { flipped, MESH, OTHER_MESH, peerNumber, readVector } from '../test/fixtures.ts'

beforeAll(ready)

const BROKER = 'bb'.repeat(32) as PeerKey
const NOW = 1_800_000_000_000

function certificate(issuer: SigningKeys, member: Identity, name: string, role: InviteRole = 'member', meshId = MESH) {
  const line = createInvite(issuer, { meshId, url: 'wss://broker.example', brokerKey: BROKER, role })
  return certificateFor(readInvite(line).bytes, member, name, meshId)
}

function certificateFor(invite: Uint8Array, { signing }: Identity, name: string, meshId: MeshId): Uint8Array {
  const transcript: Transcript = {
    ...{ version: 1, versionsOffered: [1], authority: 'broker.example:443', brokerKey: BROKER, meshId },
    ...{ peerKey: signing.publicKey, serverNonce: new Uint8Array(32), clientNonce: new Uint8Array(32) },
    ...{ connectionId: new Uint8Array(16), issuedAtMs: NOW, capabilities: [] },
  }
  const signed = { invite, name, bindingSignature: new Uint8Array(64) }
  return certificateOf({ ...signed, transcript, signature: signEnrolment(signing, transcript, signed) })
}

/** A mesh whose root has admitted the admin Ada, who has invited Ben. */
class World {
  readonly root = signingKeysFromSeed(new Uint8Array(32).fill(99))
  readonly ada = peerNumber(1)
  readonly ben = peerNumber(2)
  readonly eve = peerNumber(3)
  readonly proofs = new MembershipProofs({ meshId: MESH, root: this.root.publicKey })
  readonly byRoot = this.endorsement(this.root, this.ada, 'ada', 'admin')
  readonly byAda = certificate(this.ada.signing, this.ben, 'ben')

  constructor() {
    this.proofs.add('endorsement', this.byRoot)
    this.proofs.add('certificate', this.byAda)
  }

  endorsement(issuer: SigningKeys, { signing }: Identity, name: string, role: InviteRole = 'member', atMs = NOW) {
    return signEndorsement(issuer, { meshId: MESH, peerKey: signing.publicKey, name, role, atMs })
  }

  revoke({ signing }: Identity, by = this.ada.signing): Uint8Array {
    const { revocationCount, revocationHash: previous } = this.proofs
    const terms = { meshId: MESH, number: revocationCount + 1, previous, peerKey: signing.publicKey, atMs: NOW }
    const bytes = signRevocation(by, terms)
    expect(this.proofs.addRevocation(bytes)).toBe('added')
    return bytes
  }

  standing({ signing }: Identity | { signing: Pick<SigningKeys, 'publicKey'> }, nowMs = NOW) {
    const standing = this.proofs.standingOf(signing.publicKey, nowMs)
    return standing.proven ? `${standing.proven.names.join(' or ')}, ${standing.proven.role}` : standing.reason
  }
}

describe('statements', () => {
  test('a certificate returns what the invite and the enrolment say', () => {
    const { ada, ben, byAda } = new World()
    expect(readCertificate(byAda)).toEqual({
      ...{ meshId: MESH, peerKey: ben.signing.publicKey, name: 'ben', role: 'member', issuer: ada.signing.publicKey },
      ...{ atMs: NOW, kind: 'certificate', inviteId: expect.stringMatching(/^[0-9a-f]{32}$/) },
    })
  })

  test.each(['certificate', 'endorsement', 'revocation'] as const)('a %s with a changed byte is refused', (kind) => {
    const world = new World()
    const [bytes, read] = {
      certificate: [world.byAda, readCertificate] as const,
      endorsement: [world.byRoot, readEndorsement] as const,
      revocation: [world.revoke(world.ben), readRevocation] as const,
    }[kind]
    expect(read(bytes)).not.toBeNull()
    for (let at = 0; at < bytes.length; at += 3) expect(read(flipped(bytes, at))).toBeNull()
    expect(read(bytes.subarray(1))).toBeNull()
    expect(read(new Uint8Array([...bytes, 0]))).toBeNull()
  })

  test('an enrolment with another invite, and an invite to another mesh, are no certificate', () => {
    const { ada, ben } = new World()
    const elsewhere = readInvite(
      createInvite(ada.signing, { meshId: OTHER_MESH, url: 'wss://broker.example', brokerKey: BROKER }),
    )
    expect(readCertificate(certificateFor(elsewhere.bytes, ben, 'ben', MESH))).toBeNull()
    expect(readCertificate(certificateFor(elsewhere.bytes, ben, 'ben', OTHER_MESH))).not.toBeNull()
  })

  test('an invite can name the root; a changed root is refused', () => {
    const { ada, root } = new World()
    const line = createInvite(ada.signing, { meshId: MESH, url: 'wss://broker.example', brokerKey: BROKER })
    const named = nameRoot(ada.signing, line, { root: root.publicKey, revocations: 7 })
    expect(named).toMatch(/^sealpost2:[\w-]+$/)
    expect(readAnyInvite(` ${named}\n`)).toMatchObject({
      root: root.publicKey,
      revocations: 7,
      invite: readInvite(line),
    })
    expect(readAnyInvite(line)).toMatchObject({ root: null, revocations: 0 })
    for (let at = 10; at < named.length; at += 5) {
      const other = named[at] === 'A' ? 'B' : 'A'
      expect(() => readAnyInvite(named.slice(0, at) + other + named.slice(at + 1))).toThrow(/not an invite/)
    }
  })

  test('the frozen vectors are reproduced', () => {
    const frozen = readVector('certificate.json')
    const [root, admin] = [frozen.rootSeed, frozen.adminSeed].map((seed: string) => signingKeysFromSeed(fromHex(seed)))
    expect(toHex(signEndorsement(root!, frozen.endorsement))).toBe(frozen.endorsementBytes)
    expect(toHex(signRevocation(admin!, frozen.revocation))).toBe(frozen.revocationBytes)
    expect(nameRoot(admin!, frozen.invite, { root: root!.publicKey, revocations: 3 })).toBe(frozen.rootedInvite)
    expect(readCertificate(fromHex(frozen.certificateBytes))).toEqual({
      ...frozen.certificate,
      inviteId: readInvite(frozen.invite).inviteId,
    })
  })
})

describe('chains', () => {
  test('a member is proven by a chain of certificates to the root', () => {
    const world = new World()
    expect(world.standing(world.ada)).toBe('ada, admin')
    expect(world.standing(world.ben)).toBe('ben, member')
    expect(world.proofs.standingOf(world.eve.signing.publicKey, NOW)).toEqual({
      ...{ proven: null, reason: 'no_certificate', wanted: [world.eve.signing.publicKey] },
    })
  })

  test('an invite of a member that is no admin, of a stranger, or with a forged endorsement proves nothing', () => {
    const world = new World()
    world.proofs.add('certificate', certificate(world.ben.signing, world.eve, 'eve'))
    expect(world.standing(world.eve)).toBe('chain_broken')
    const stranger = peerNumber(9)
    world.proofs.add('certificate', certificate(stranger.signing, peerNumber(4), 'x'))
    expect(world.standing(peerNumber(4))).toBe('chain_broken')
    expect(
      world.proofs.add('certificate', certificate(world.ada.signing, peerNumber(5), 'y', 'member', OTHER_MESH)),
    ).toEqual([])
    expect(world.standing(peerNumber(5))).toBe('no_certificate')
  })

  test('two strangers that admit each other are not proven', () => {
    const world = new World()
    const [one, two] = [peerNumber(7), peerNumber(8)]
    world.proofs.add('endorsement', world.endorsement(one.signing, two, 'two', 'admin'))
    world.proofs.add('endorsement', world.endorsement(two.signing, one, 'one', 'admin'))
    expect([world.standing(one), world.standing(two)]).toEqual(['chain_broken', 'chain_broken'])
  })

  test('the newest valid endorsement counts, and one without a right changes nothing', () => {
    const world = new World()
    world.proofs.add('endorsement', world.endorsement(world.eve.signing, world.ben, 'ben', 'admin', NOW + 9))
    expect(world.standing(world.ben)).toBe('ben, member')
    world.proofs.add('endorsement', world.endorsement(world.ada.signing, world.ben, 'ben', 'admin', NOW + 2))
    world.proofs.add('endorsement', world.endorsement(world.ada.signing, world.ben, 'old', 'member', NOW + 1))
    expect(world.standing(world.ben)).toBe('ben, admin')
  })

  test('a device is proven through its user, until its voucher expires or its user removes it', () => {
    const world = new World()
    const [invite, device] = [peerNumber(20).signing, peerNumber(21).signing]
    const user = world.ben.signing.publicKey
    const terms = {
      meshId: MESH,
      user,
      inviteKey: invite.publicKey,
      label: 'laptop',
      joinByMs: NOW,
      notAfterMs: NOW + 5,
    }
    world.proofs.add('device', signDevice(device, invite, signVoucher(world.ben.signing, terms)))
    expect(world.standing({ signing: device })).toMatch(/^ben\/laptop or [0-9a-f]{8}\/laptop, member$/)
    expect(world.standing({ signing: device }, NOW + 6)).toBe('chain_broken')
    world.proofs.add('removal', signRemoval(world.ben.signing, { meshId: MESH, user, device: device.publicKey }))
    expect(world.standing({ signing: device })).toBe('revoked')
  })

  test('an invite certifies the first key that it was seen with', () => {
    const world = new World()
    const line = createInvite(world.ada.signing, { meshId: MESH, url: 'wss://broker.example', brokerKey: BROKER })
    const { bytes } = readInvite(line)
    world.proofs.add('certificate', certificateFor(bytes, world.eve, 'eve', MESH))
    world.proofs.add('certificate', certificateFor(bytes, peerNumber(50), 'ghost', MESH))
    expect([world.standing(world.eve), world.standing(peerNumber(50))]).toEqual(['eve, member', 'no_certificate'])
  })

  test('a recovered key is proven through its former key', () => {
    const world = new World()
    const [device, next] = [peerNumber(60).signing, peerNumber(61)]
    const heirs = signHeirs(world.ben.signing, {
      meshId: MESH,
      epoch: 1,
      heirs: [{ device: device.publicKey, label: 'x' }],
    })
    world.proofs.add('recovery', signRecovery({ heir: device, successor: next.signing }, { heirs, atMs: NOW }))
    expect(world.standing(next)).toBe('ben, member')
    world.revoke(world.ben)
    expect(world.standing(next)).toBe('revoked')
  })

  test('a rotated identity key is proven through its former key', () => {
    const world = new World()
    const next = peerNumber(30)
    const keys = { former: world.ben.signing, successor: next.signing }
    world.proofs.add('succession', signIdentityRotation(keys, { meshId: MESH, atMs: NOW }))
    expect(world.standing(next)).toBe('ben, member')
    expect(world.proofs.keysOf(next.signing.publicKey)).toEqual([world.ben.signing.publicKey, next.signing.publicKey])
    world.revoke(next)
    expect([world.standing(next), world.standing(world.ben)]).toEqual(['revoked', 'revoked'])
  })
})

describe('revocations', () => {
  test('a revoked member stays revoked, even if another statement about it is presented', () => {
    const world = new World()
    world.revoke(world.ben)
    expect(world.standing(world.ben)).toBe('revoked')
    world.proofs.add('endorsement', world.endorsement(world.root, world.ben, 'ben', 'member', NOW + 1))
    expect(world.standing(world.ben)).toBe('revoked')
  })

  test('only an admin can revoke; a revocation by someone else counts as a number and has no effect', () => {
    const world = new World()
    world.revoke(world.ada, world.ben.signing)
    expect(world.standing(world.ada)).toBe('ada, admin')
    expect(world.proofs.revocationCount).toBe(1)
  })

  test('a revoked admin takes those it admitted along, until another admin admits them', () => {
    const world = new World()
    const carol = peerNumber(40)
    world.proofs.add('endorsement', world.endorsement(world.root, carol, 'carol', 'admin'))
    world.revoke(world.eve)
    world.revoke(world.ada, carol.signing)
    expect(world.standing(world.ben)).toBe('chain_broken')
    expect(world.standing(world.eve)).toBe('revoked')
    expect(world.proofs.certifiedBy(world.ada.signing.publicKey)).toEqual([world.ben.signing.publicKey])
    world.proofs.add('endorsement', world.endorsement(carol.signing, world.ben, 'ben'))
    expect(world.standing(world.ben)).toBe('ben, member')
    world.revoke(carol, world.ada.signing)
    expect(world.standing(carol)).toBe('carol, admin')
  })

  test('a revocation is accepted only in its place', () => {
    const world = new World()
    const first = world.revoke(world.eve)
    const terms = { meshId: MESH, number: 1, previous: NO_REVOCATION, peerKey: world.ben.signing.publicKey, atMs: NOW }
    const other = signRevocation(world.ada.signing, terms)
    const outcomes = [
      first,
      other,
      signRevocation(world.ada.signing, { ...terms, number: 3, previous: revocationHash(first) }),
      signRevocation(world.ada.signing, { ...terms, number: 2 }),
      signRevocation(world.ada.signing, { ...terms, number: 2, previous: revocationHash(first), meshId: OTHER_MESH }),
    ].map((bytes) => world.proofs.addRevocation(bytes))
    expect(outcomes).toEqual(['known', 'forked', 'gap', 'forked', 'forged'])
  })
})
