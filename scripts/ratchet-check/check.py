"""Checks the vectors of ratchets with PyPI's X3DH and DoubleRatchet, an implementation by other authors.

    python3 -m venv venv && venv/bin/pip install -r scripts/ratchet-check/requirements.txt
    venv/bin/python scripts/ratchet-check/check.py packages/protocol/vectors/ratchet.json

The libraries take their key derivations and their AEAD as parameters, and get ours (docs/adr/0018-ratchets.md).
Messages before the first restart are those of a Double Ratchet, so DoubleRatchet seals and opens them. A restart begins
a fork, which DoubleRatchet does not know; this file derives the keys of those messages itself.
"""

import asyncio
import hashlib
import hmac
import json
import struct
import sys

import doubleratchet
import x3dh
import x3dh.base_state
import xeddsa
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from doubleratchet.types import EncryptedMessage, Header
from nacl import bindings as nacl

FORK = b"sealpost-ratchet-fork/1\0"
ROOT = b"sealpost-ratchet-root/1\0"
HEADER = b"sealpost-ratchet-header/1\0"
AGREEMENT = b"sealpost-agreement/1\0"
MAC_AT = 71
HEADER_BYTES = 87


def unhex(text):
    return bytes.fromhex(text)


def lp(data):
    return struct.pack(">H", len(data)) + data


def blake(key, data, length=64):
    return hashlib.blake2b(data, key=key, digest_size=length).digest()


def same(name, actual, expected):
    if not hmac.compare_digest(actual, expected):
        raise SystemExit(f"{name} differs: {actual.hex()} instead of {expected.hex()}")


class RootKdf(doubleratchet.KDF):
    @staticmethod
    async def derive(key, data, length):
        assert length == 64
        seed = blake(key, FORK)[32:]
        return blake(seed, ROOT + data)


class ChainKdf(doubleratchet.KDF):
    @staticmethod
    async def derive(key, data, length):
        assert length == 64
        return blake(key, data)


class Aead(doubleratchet.AEAD):
    """XChaCha20-Poly1305 with the nonces and the message keys of the vectors, by associated data."""

    expected = {}

    @staticmethod
    async def encrypt(plaintext, key, associated_data):
        nonce, message_key = Aead.expected[associated_data]
        same("a message key", key, message_key)
        return nacl.crypto_aead_xchacha20poly1305_ietf_encrypt(plaintext, associated_data, nonce, key)

    @staticmethod
    async def decrypt(ciphertext, key, associated_data):
        nonce, message_key = Aead.expected[associated_data]
        same("a message key", key, message_key)
        return nacl.crypto_aead_xchacha20poly1305_ietf_decrypt(ciphertext, associated_data, nonce, key)


class Curve(doubleratchet.DiffieHellmanRatchet):
    """X25519 with the secrets of the vectors, in the order in which they are needed."""

    secrets = []

    @staticmethod
    def _generate_priv():
        return Curve.secrets.pop(0)

    @staticmethod
    def _derive_pub(priv):
        return nacl.crypto_scalarmult_base(priv)

    @staticmethod
    def _perform_diffie_hellman(own_priv, other_pub):
        return nacl.crypto_scalarmult(own_priv, other_pub)


class Ratchet(doubleratchet.DoubleRatchet):
    """Takes the header bytes of the vectors as associated data, after a comparison with the library's header."""

    headers = {}

    @staticmethod
    def _build_associated_data(associated_data, header):
        line = Ratchet.headers[(header.ratchet_pub, header.sending_chain_length)]
        assert header.previous_sending_chain_length == line["previous"], "the length of the previous chain differs"
        return associated_data + unhex(line["bytes"])[:MAC_AT]


class Prekeys(x3dh.BaseState):
    @staticmethod
    def _encode_public_key(key_format, pub):
        return pub


def split(line, initiation_bytes):
    data = unhex(line["bytes"])
    at = HEADER_BYTES + (initiation_bytes if data[4] & 1 else 0)
    return data[:MAC_AT], data[MAC_AT:HEADER_BYTES], data[HEADER_BYTES:], data[at : at + 24], data[at + 24 :]


async def check_x3dh(vector, case):
    """Both sides of the library compute the secret of the vector."""
    initiator, responder, prekeys = vector["initiator"], vector["responder"], case["prekeys"]
    initiation = unhex(case["agreement"]["initiation"])
    ephemeral_key = initiation[21:53]
    one_time = unhex(prekeys["oneTimeSecret"]) if "oneTimeSecret" in prekeys else None
    signed = unhex(prekeys["secret"])
    signing = xeddsa.priv_force_sign(unhex(responder["boxSecret"]), False)
    signature = xeddsa.ed25519_priv_sign(signing, nacl.crypto_scalarmult_base(signed))

    def model(secret, signed_secret, signed_signature, one_times):
        return x3dh.models.BaseStateModel(
            identity_key=x3dh.models.IdentityKeyPairModel(secret=secret, secret_type=x3dh.types.SecretType.PRIV),
            signed_pre_key=x3dh.models.SignedPreKeyPairModel(priv=signed_secret, sig=signed_signature, timestamp=0),
            old_signed_pre_key=None,
            pre_keys=frozenset(one_times),
        )

    def state(*parts):
        info = b"sealpost-x3dh/1"
        return Prekeys.from_model(model(*parts), x3dh.IdentityKeyFormat.CURVE_25519, x3dh.HashFunction.SHA_512, info)

    one_times = [] if one_time is None else [one_time]
    passive = state(unhex(responder["boxSecret"]), signed, signature, one_times)
    header = x3dh.Header(
        identity_key=unhex(initiator["boxKey"]),
        ephemeral_key=ephemeral_key,
        pre_key=None if one_time is None else nacl.crypto_scalarmult_base(one_time),
        signed_pre_key=unhex(prekeys["publicKey"]),
    )
    secret, _, _ = await passive.get_shared_secret_passive(header, require_pre_key=one_time is not None)
    same("the secret of X3DH", secret, unhex(case["agreement"]["x3dhSecret"]))
    # The initiator's ephemeral secret is not in the vectors, so the other side runs with one of its own.
    active = state(unhex(initiator["boxSecret"]), signed, signature, [])
    own, _, sent = await active.get_shared_secret_active(passive.bundle, require_pre_key=one_time is not None)
    again, _, _ = await passive.get_shared_secret_passive(sent, require_pre_key=one_time is not None)
    same("the secret of the library's initiator", own, again)


def check_agreement(vector, case):
    """The root and the binding follow from the secret and the transcript."""
    agreement, prekeys = case["agreement"], case["prekeys"]
    initiation, statement = unhex(agreement["initiation"]), unhex(prekeys["statement"])

    def peer(side):
        return lp(unhex(side["peerKey"])) + lp(unhex(side["boxKey"])) + struct.pack(">I", side["boxEpoch"])

    kem_length = struct.unpack(">H", statement[110:112])[0]
    kem_key = statement[112 : 112 + kem_length]
    one_time = nacl.crypto_scalarmult_base(unhex(prekeys["oneTimeSecret"])) if "oneTimeSecret" in prekeys else b""
    kem_secret = b""
    if kem_length:
        kem_secret = unhex(agreement["kemSecret"])
        check_kem(prekeys, kem_key, initiation[53:], kem_secret)
    scope = vector["scope"]
    transcript = (
        lp(unhex(scope["meshId"]))
        + bytes([scope["priority"]])
        + peer(vector["initiator"])
        + peer(vector["responder"])
        + struct.pack(">I", prekeys["id"])
        + lp(unhex(prekeys["publicKey"]))
        + lp(kem_key)
        + lp(one_time)
        + initiation
    )
    whole = blake(unhex(agreement["x3dhSecret"]), AGREEMENT + transcript + lp(kem_secret))
    same("the root", whole[:32], unhex(agreement["root"]))
    same("the binding", whole[32:], unhex(agreement["binding"]))
    same("the header key", blake(whole[:32], HEADER, 32), unhex(agreement["headerKey"]))
    session = initiation[15:21] + hashlib.blake2b(AGREEMENT + transcript, digest_size=32).digest()[:4]
    same("the session id", session, unhex(agreement["sessionId"]))
    signed = b"sealpost-prekey/1\0" + statement[:-64]
    nacl.crypto_sign_open(statement[-64:] + signed, unhex(vector["responder"]["peerKey"]))


def check_kem(prekeys, kem_key, text, secret):
    """OpenSSL derives the same ML-KEM-768 key from the seed, and opens the ciphertext."""
    private = MLKEM768PrivateKey.from_seed_bytes(unhex(prekeys["kemSeed"]))
    same("the ML-KEM key", private.public_key().public_bytes_raw(), kem_key)
    same("the ML-KEM secret", private.decapsulate(text), secret)


async def check_double_ratchet(case):
    """DoubleRatchet seals and opens every message before the first restart, with the bytes of the vector."""
    lines = []
    for line in case["messages"]:
        if line.get("isRestart"):
            break
        lines.append(line)
    initiation_bytes = len(case["agreement"]["initiation"]) // 2
    binding, root = unhex(case["agreement"]["binding"]), unhex(case["agreement"]["root"])
    Ratchet.headers = {(unhex(line["ratchetKey"]), line["number"]): line for line in lines}
    Aead.expected = {
        binding + split(line, initiation_bytes)[0]: (unhex(line["nonce"]), unhex(line["messageKey"])) for line in lines
    }
    secrets = {"initiator": [], "responder": []}
    for line in lines:
        secret = unhex(line["ratchetSecret"])
        if secret not in secrets[line["from"]]:
            secrets[line["from"]].append(secret)
    for spare in secrets.values():
        spare.append(bytes(31) + b"\1")  # the library changes its key on receipt, also after the last message
    shared = dict(
        diffie_hellman_ratchet_class=Curve,
        root_chain_kdf=RootKdf,
        message_chain_kdf=ChainKdf,
        message_chain_constant=b"\1",
        dos_protection_threshold=100,
        max_num_skipped_message_keys=1000,
        aead=Aead,
        shared_secret=root,
        associated_data=binding,
    )
    ratchets = {}
    for line in lines:
        sender, recipient = line["from"], "responder" if line["from"] == "initiator" else "initiator"
        _, _, _, nonce, sealed = split(line, initiation_bytes)
        text = line["text"].encode()
        Curve.secrets = secrets[sender]
        if sender not in ratchets:
            prekey = unhex(case["prekeys"]["publicKey"])
            ratchets[sender], message = await Ratchet.encrypt_initial_message(
                **shared, recipient_ratchet_pub=prekey, message=text
            )
        else:
            message = await ratchets[sender].encrypt_message(text, binding)
        same("a ciphertext", message.ciphertext, sealed)
        same("a ratchet key", message.header.ratchet_pub, unhex(line["ratchetKey"]))
        header = Header(unhex(line["ratchetKey"]), line["previous"], line["number"])
        message = EncryptedMessage(header=header, ciphertext=sealed)
        Curve.secrets = secrets[recipient]
        if recipient not in ratchets:
            prekey = unhex(case["prekeys"]["secret"])
            ratchets[recipient], opened = await Ratchet.decrypt_initial_message(
                **shared, own_ratchet_priv=prekey, message=message
            )
        else:
            opened = await ratchets[recipient].decrypt_message(message, binding)
        same("a text", opened, text)
    return len(lines)


def check_all_messages(case):
    """Every message, also after restarts: the keys of its chain, its header, and its MAC."""
    initiation_bytes = len(case["agreement"]["initiation"]) // 2
    binding, header_key = unhex(case["agreement"]["binding"]), unhex(case["agreement"]["headerKey"])
    # The bases of the parents, by side and chain: what the other side computes its forks from.
    bases = {("responder", 0): unhex(case["agreement"]["root"])}
    publics = {("responder", 0): unhex(case["prekeys"]["publicKey"])}
    chains = {}
    for line in case["messages"]:
        sender, other = line["from"], "responder" if line["from"] == "initiator" else "initiator"
        header, mac, rest, nonce, sealed = split(line, initiation_bytes)
        place = (sender, line["chain"])
        if place not in chains:
            base = bases[(other, line["parent"])]
            for _ in range(line["fork"] + 1):
                halves = blake(base, FORK)
                base, seed = halves[:32], halves[32:]
            secret = nacl.crypto_scalarmult(unhex(line["ratchetSecret"]), publics[(other, line["parent"])])
            halves = blake(seed, ROOT + secret)
            bases[place], chains[place] = halves[:32], [halves[32:], 0]
            publics[place] = unhex(line["ratchetKey"])
        chain = chains[place]
        assert chain[1] == line["number"], "the number differs"
        halves = blake(chain[0], b"\1")
        chain[0], chain[1] = halves[:32], chain[1] + 1
        same("a message key", halves[32:], unhex(line["messageKey"]))
        opened = nacl.crypto_aead_xchacha20poly1305_ietf_decrypt(sealed, binding + header, nonce, halves[32:])
        same("a text", opened, line["text"].encode())
        same("a MAC", blake(header_key, header + rest, 16), mac)
        numbers = [line[name] for name in ("chain", "parent", "fork", "number", "previous", "ack")]
        flags = 1 if len(rest) == initiation_bytes + 40 + len(opened) else 0
        expected = b"SPR1" + bytes([flags]) + unhex(case["agreement"]["sessionId"]) + unhex(line["ratchetKey"])
        same("a header", header, expected + struct.pack(">6I", *numbers))
    return len(case["messages"])


async def main(path):
    with open(path) as file:
        vector = json.load(file)
    steps = vector["steps"]
    key, secret = unhex(steps["key"]), unhex(steps["secret"])
    for name, data in (("base", FORK), ("root", ROOT + secret), ("chain", b"\1")):
        same(name, blake(key, data), unhex(steps[name]["next"] + steps[name]["out"]))
    for name in ("suite1", "suite2LastResort"):
        case = vector[name]
        await check_x3dh(vector, case)
        check_agreement(vector, case)
        count, known = check_all_messages(case), await check_double_ratchet(case)
        print(f"{name}: X3DH agrees; {known} of {count} messages agree with DoubleRatchet, {count} with this file")


asyncio.run(main(sys.argv[1]))
