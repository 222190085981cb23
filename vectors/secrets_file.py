"""Cases for the file with the secrets of a backup (docs/formats.md), for generate.py."""
import json
import struct

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

MAGIC = b"incrowd/secrets/v1\0"


def pack(passphrase, secrets, memory=64, passes=3, lanes=1, salt=bytes(range(16)), text=None):
    header = MAGIC + struct.pack(">III", memory, passes, lanes) + salt
    key = Argon2id(salt=salt, length=32, iterations=passes, lanes=lanes, memory_cost=memory).derive(passphrase.encode())
    text = json.dumps(secrets).encode() if text is None else text
    return header + ChaCha20Poly1305(key).encrypt(bytes(12), text, header)


def secrets_cases():
    word, secrets = "correct horse battery staple", {"shuffler.keys": "00ff80", "tokens.toml": ""}
    good = pack(word, secrets)
    files = [("a file", word, good, {"secrets": secrets}),
             ("no secret", word, pack(word, {}), {"secrets": {}}),
             ("four lanes and another salt", word, pack(word, secrets, 32, 1, 4, bytes(16)), {"secrets": secrets}),
             ("a passphrase beyond ASCII", "Übergröße über alles", pack("Übergröße über alles", secrets), {"secrets": secrets}),
             ("another passphrase", word + " ", good, {"error": "passphrase"}),
             ("a bit of the salt", word, good[:40] + bytes([good[40] ^ 1]) + good[41:], {"error": "passphrase"}),
             ("fewer passes", word, good[:23] + struct.pack(">I", 2) + good[27:], {"error": "passphrase"}),
             ("a bit of the content", word, good[:-20] + bytes([good[-20] ^ 1]) + good[-19:], {"error": "passphrase"}),
             ("the last byte missing", word, good[:-1], {"error": "passphrase"}),
             ("header alone", word, good[:47], {"error": "passphrase"}),
             ("46 bytes", word, good[:46], {"error": "format"}),
             ("another version", word, good.replace(b"/v1", b"/v2", 1), {"error": "format"}),
             ("too much memory", word, good[:19] + struct.pack(">I", 2**20 + 1) + good[23:], {"error": "format"}),
             ("too little memory", word, good[:19] + struct.pack(">I", 7) + good[23:], {"error": "format"}),
             ("too many passes", word, good[:23] + struct.pack(">I", 65) + good[27:], {"error": "format"}),
             ("no pass", word, good[:23] + struct.pack(">I", 0) + good[27:], {"error": "format"}),
             ("too many lanes", word, good[:27] + struct.pack(">I", 17) + good[31:], {"error": "format"}),
             ("a list inside", word, pack(word, [1]), {"error": "format"}),
             ("no hex inside", word, pack(word, {"a": "0g"}), {"error": "format"}),
             ("nothing inside", word, pack(word, {}, text=b""), {"error": "format"})]
    return [{"name": name, "passphrase": passphrase, "file": data.hex(), **rest} for name, passphrase, data, rest in files]


FILES = {"secrets.json": (secrets_cases, "Files with the secrets of a backup; with 'error', what must be refused.")}
