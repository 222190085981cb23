use getrandom::SysRng;
use getrandom::rand_core::TryRng;
use hpke::{
    Deserializable, Kem as _, OpModeR, OpModeS, Serializable, aead::ChaCha20Poly1305,
    kdf::HkdfSha256, kem::X25519HkdfSha256, single_shot_open, single_shot_seal,
};
use incrowd_protocol::{ReportId, SealingKey, SealingPublicKey, TaskId};
use zeroize::Zeroizing;

use crate::EnvelopeError;

type Kem = X25519HkdfSha256;
type Secret = <Kem as hpke::Kem>::PrivateKey;
type Public = <Kem as hpke::Kem>::PublicKey;
type Encapsulated = <Kem as hpke::Kem>::EncappedKey;

const VERSION: u8 = 1;
const HEADER: usize = 22;
const KEY: usize = 32;
const TAG: usize = 16;

/// What a sealed report says in the clear; all of it is bound to the sealed part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedHeader {
    /// Number of the key it is sealed to.
    pub key: u8,
    /// Round of the report.
    pub round: u32,
    /// Id of the report.
    pub id: ReportId,
}

impl SealedHeader {
    /// The header of these bytes. Nothing is believed yet: [`OpeningKey::open`] checks it.
    pub fn decode(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        let (found, needed) = (bytes.len(), sealed_len(0));
        let Some(header) = bytes.first_chunk::<HEADER>().filter(|_| found >= needed) else {
            return Err(EnvelopeError::Short { found, needed });
        };
        if header[0] != VERSION {
            return Err(EnvelopeError::Version(header[0]));
        }
        let round = u32::from_be_bytes([header[2], header[3], header[4], header[5]]);
        let mut id = [0; 16];
        id.copy_from_slice(&header[6..]);
        Ok(Self { key: header[1], round, id: ReportId(id) })
    }

    fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = VERSION;
        bytes[1] = self.key;
        bytes[2..6].copy_from_slice(&self.round.to_be_bytes());
        bytes[6..].copy_from_slice(&self.id.0);
        bytes
    }
}

/// The bytes of a sealed report, whose header is read.
pub struct Sealed<'a> {
    header: SealedHeader,
    bytes: &'a [u8],
}

impl<'a> Sealed<'a> {
    /// Reads the header. Nothing is believed yet: [`OpeningKey::open_sealed`] checks it.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, EnvelopeError> {
        Ok(Self { header: SealedHeader::decode(bytes)?, bytes })
    }

    /// What it says in the clear.
    pub fn header(&self) -> &SealedHeader {
        &self.header
    }
}

/// Bytes of a sealed report whose report has `report` bytes.
pub const fn sealed_len(report: usize) -> usize {
    HEADER + KEY + report + TAG
}

/// Seals the bytes of a report to the shuffler's key, bound to task, round and id (and to the
/// mechanism through the task's id).
///
/// # Privacy
/// Whoever carries the result sees the round and the random id, and no more.
pub fn seal(
    task: &TaskId,
    key: &SealingKey,
    round: u32,
    id: ReportId,
    report: &[u8],
) -> Result<Vec<u8>, EnvelopeError> {
    let public = Public::from_bytes(key.key.bytes()).map_err(|_| EnvelopeError::PublicKey)?;
    let header = SealedHeader { key: key.id, round, id }.encode();
    let (encapsulated, sealed) = single_shot_seal::<ChaCha20Poly1305, HkdfSha256, Kem>(
        &OpModeS::Base,
        &public,
        &info(task),
        report,
        &header,
    )
    .map_err(|_| EnvelopeError::PublicKey)?;
    Ok([header.as_slice(), encapsulated.to_bytes().as_slice(), &sealed].concat())
}

/// The secret of a sealing key. It cannot be printed; it is erased when it is dropped.
pub struct OpeningKey {
    secret: Secret,
}

impl OpeningKey {
    /// A new key from the operating system's randomness.
    pub fn generate() -> Result<Self, EnvelopeError> {
        let (secret, _) = Kem::derive_keypair(random()?.as_slice());
        Ok(Self { secret })
    }

    /// The key with this secret.
    pub fn from_bytes(secret: &[u8; 32]) -> Result<Self, EnvelopeError> {
        let secret = Secret::from_bytes(secret).map_err(|_| EnvelopeError::PublicKey)?;
        Ok(Self { secret })
    }

    /// The secret, to be written to the shuffler's key file.
    pub fn to_bytes(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.secret.to_bytes().into())
    }

    /// The public half, which devices seal to.
    pub fn public(&self) -> SealingPublicKey {
        SealingPublicKey(Kem::sk_to_pk(&self.secret).to_bytes().into())
    }

    /// The bytes of the report inside, if they were sealed to this key for this task and the header
    /// that is in front, and nothing was changed.
    pub fn open(&self, task: &TaskId, bytes: &[u8]) -> Result<Vec<u8>, EnvelopeError> {
        self.open_sealed(task, &Sealed::decode(bytes)?)
    }

    /// The same for bytes whose header is read.
    pub fn open_sealed(
        &self,
        task: &TaskId,
        sealed: &Sealed<'_>,
    ) -> Result<Vec<u8>, EnvelopeError> {
        // Invariant: a header is decoded only from bytes that are long enough for these parts.
        let (header, rest) = sealed.bytes.split_at(HEADER);
        let (encapsulated, sealed) = rest.split_at(KEY);
        let encapsulated =
            Encapsulated::from_bytes(encapsulated).map_err(|_| EnvelopeError::CannotOpen)?;
        single_shot_open::<ChaCha20Poly1305, HkdfSha256, Kem>(
            &OpModeR::Base,
            &self.secret,
            &encapsulated,
            &info(task),
            sealed,
            header,
        )
        .map_err(|_| EnvelopeError::CannotOpen)
    }
}

fn info(task: &TaskId) -> Vec<u8> {
    [b"incrowd/sealed-report/v1\0".as_slice(), task.bytes()].concat()
}

/// 32 bytes from the operating system.
pub(crate) fn random() -> Result<Zeroizing<[u8; 32]>, EnvelopeError> {
    let mut bytes = Zeroizing::new([0; 32]);
    SysRng.try_fill_bytes(bytes.as_mut_slice()).map_err(EnvelopeError::Randomness)?;
    Ok(bytes)
}
