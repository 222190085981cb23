//! Reports, sealed reports and signatures.

use std::{collections::HashSet, sync::LazyLock};

use incrowd_envelope::{
    Document, EnvelopeError, OpeningKey, SealedHeader, Signature, seal, sealed_len, verify,
};
use incrowd_protocol::{
    BULK_LIMIT, KeyState, Law, Mechanism, Payload, ProtocolError, Report, ReportId, SealingKey,
    VerificationKey, Words, push_report, split_reports,
};

use crate::known::{ENVELOPE, MECHANISMS, TASK, all};

const HEADER: usize = 29;

/// A byte that names the mechanism, and a report. With the byte's top bit the version and the hash
/// are put right, so that the rest gets its turn.
pub fn report(data: &[u8]) {
    let Some((&first, bytes)) = data.split_first() else { return };
    let mechanism = &MECHANISMS[usize::from(first & 127) % MECHANISMS.len()];
    let mut bytes = bytes.to_vec();
    if first > 127 {
        put_right(&mut bytes, mechanism);
    }
    check_report(&bytes, mechanism);
}

/// A body of many reports.
pub fn bulk(data: &[u8]) {
    match split_reports(data) {
        Ok(reports) => {
            assert!(reports.len() <= BULK_LIMIT);
            let mut body = Vec::new();
            reports.iter().for_each(|report| push_report(&mut body, report));
            assert_eq!(body, data, "one way of writing a body");
        }
        Err(error) => {
            assert!(matches!(error, ProtocolError::Bulk | ProtocolError::BulkLimit));
            // With one byte less or more of zeros behind it is another body, and still none that
            // panics.
            let _ = split_reports(&data[..data.len() - 1]);
            let _ = split_reports(&[data, &[0]].concat());
        }
    }
}

/// Gives bytes the version and the hash of a mechanism, if they are long enough.
pub fn put_right(bytes: &mut [u8], mechanism: &Mechanism) {
    if let Some(start) = bytes.first_chunk_mut::<9>() {
        start[0] = 1;
        start[1..].copy_from_slice(mechanism.hash().prefix());
    }
}

fn check_report(bytes: &[u8], mechanism: &Mechanism) {
    match Report::decode(bytes, mechanism) {
        Ok(report) => {
            let round = mechanism.round(report.round()).expect("a round of the schedule");
            assert_eq!(bytes.len(), Report::encoded_len(mechanism, round.law));
            assert_eq!(report.encode(mechanism).unwrap(), bytes, "one way of writing a report");
            assert_eq!(report.mechanism(), mechanism.hash());
            assert_eq!(report.id().0, bytes[13..HEADER]);
            check_payload(&bytes[HEADER..], mechanism, round.law, report.payload());
            let (id, payload) = (report.id(), report.payload().clone());
            assert_eq!(Report::new(mechanism, round.number, id, payload), Ok(report));
        }
        Err(ProtocolError::Short { found, needed }) => {
            assert!(found == bytes.len() && found < needed);
        }
        Err(ProtocolError::Long { found, needed }) => {
            assert!(found == bytes.len() && found > needed);
        }
        Err(ProtocolError::Version(version)) => assert!(bytes[0] == version && version != 1),
        Err(ProtocolError::Task) => assert_ne!(&bytes[1..9], mechanism.hash().prefix()),
        Err(ProtocolError::Round { round, last }) => assert!(round == 0 || round > last),
        Err(ProtocolError::Count { coordinate, bits }) => {
            assert!(u32::from(counts(&bytes[HEADER..], mechanism, bits)[coordinate]) > bits);
        }
        Err(ProtocolError::WordIndex { index, words }) => {
            assert!(bytes[45] == index && u32::from(index) >= words && bytes.len() == 46);
        }
        Err(ProtocolError::Padding) => assert_ne!(bytes[bytes.len() - 1], 0),
        Err(other) => panic!("{other}"),
    }
}

/// What a report says is what its bytes say, and in range; and it adds to sums what it says.
fn check_payload(bytes: &[u8], mechanism: &Mechanism, law: Law, payload: &Payload) {
    let mut sums = vec![-3; mechanism.coordinates()];
    payload.add_to(&mut sums);
    let added = said(payload, mechanism);
    assert!(sums.iter().zip(&added).all(|(sum, added)| *sum == added - 3));
    let (low, high) = law.range();
    assert!(added.iter().all(|added| (low..=high).contains(added)));
    match (law, payload) {
        (Law::Bits(law), Payload::Counts(found)) => {
            assert_eq!(*found, counts(bytes, mechanism, law.bits));
            assert!(found.iter().all(|&count| u32::from(count) <= law.bits));
        }
        (Law::Codebook(law), Payload::Word { seed, index }) => {
            assert_eq!(bytes, [&seed[..], &[*index]].concat());
            assert!(u32::from(*index) < law.words);
        }
        _ => panic!("a payload of another encoding"),
    }
}

/// What a report adds to each sum, one by one.
pub fn said(payload: &Payload, mechanism: &Mechanism) -> Vec<i64> {
    match payload {
        Payload::Counts(counts) => counts.iter().map(|&count| i64::from(count)).collect(),
        Payload::Word { seed, index } => {
            let (coordinates, word) = (mechanism.coordinates(), usize::from(*index));
            let mut words = Words::new(seed, coordinates + 1);
            (0..coordinates).map(|entry| i64::from(words.entry(word, entry))).collect()
        }
    }
}

/// The counts bit by bit: bit i of the payload is bit i mod 8 of byte i div 8.
fn counts(payload: &[u8], mechanism: &Mechanism, bits: u32) -> Vec<u16> {
    let width = f64::from(bits + 1).log2().ceil() as usize;
    let bit = |i: usize| u16::from(payload[i / 8] >> (i % 8) & 1);
    let count = |j: usize| (0..width).map(|k| bit(j * width + k) << k).sum();
    (0..mechanism.coordinates()).map(count).collect()
}

/// Even first byte: a sealed report as it is. Odd: what to seal, with the bit to change afterwards.
pub fn sealed(data: &[u8]) {
    let Some((&first, bytes)) = data.split_first() else { return };
    if first % 2 == 0 { check_sealed(bytes) } else { seal_and_change(bytes) }
}

static SECRET: LazyLock<OpeningKey> = LazyLock::new(|| {
    let case = ENVELOPE.iter().find(|case| case["kind"] == "sealed").unwrap();
    let mut secret = [0; 32];
    hex::decode_to_slice(case["keys"][0]["secret"].as_str().unwrap(), &mut secret).unwrap();
    OpeningKey::from_bytes(&secret).unwrap()
});

fn check_sealed(bytes: &[u8]) {
    static SEALED: LazyLock<HashSet<Vec<u8>>> = LazyLock::new(|| all("sealed", "sealed"));
    let header = match SealedHeader::decode(bytes) {
        Ok(header) => header,
        Err(EnvelopeError::Short { found, needed }) => {
            assert!(found == bytes.len() && needed == sealed_len(0) && found < needed);
            return;
        }
        Err(EnvelopeError::Version(version)) => {
            return assert!(bytes[0] == version && version != 1);
        }
        Err(other) => panic!("{other}"),
    };
    let written = [&[1, header.key], header.round.to_be_bytes().as_slice(), &header.id.0].concat();
    assert_eq!(written, bytes[..22], "one way of writing a header");
    match SECRET.open(&TASK.id(), bytes) {
        Ok(report) => {
            assert_eq!(sealed_len(report.len()), bytes.len());
            assert!(SEALED.contains(bytes), "nobody sealed this");
        }
        Err(error) => assert_eq!(error, EnvelopeError::CannotOpen),
    }
}

fn seal_and_change(bytes: &[u8]) {
    let Some((parameters, report)) = bytes.split_first_chunk::<25>() else { return };
    let (task, round) = (TASK.id(), u32::from_be_bytes([0, 0, parameters[3], parameters[4]]));
    let mut id = [0; 16];
    id.copy_from_slice(&parameters[5..21]);
    let key = SealingKey { id: parameters[2], key: SECRET.public(), state: KeyState::Active };
    let mut sealed = seal(&task, &key, round, ReportId(id), report).unwrap();
    assert_eq!(SECRET.open(&task, &sealed).as_deref(), Ok(report));
    let bit = usize::from(u16::from_be_bytes([parameters[0], parameters[1]])) % (sealed.len() * 8);
    sealed[bit / 8] ^= 1 << (bit % 8);
    assert!(SECRET.open(&task, &sealed).is_err(), "bit {bit} changed");
    // Cutting is not the same as changing.
    let kept = usize::from(parameters[21]) * sealed.len() / 256;
    sealed[bit / 8] ^= 1 << (bit % 8);
    assert!(SECRET.open(&task, &sealed[..kept]).is_err(), "{kept} bytes kept");
}

/// Even first byte: the text of a signature of the first good document. Odd: key, signature and
/// body as bytes.
pub fn signature(data: &[u8]) {
    let Some((&first, bytes)) = data.split_first() else { return };
    let kinds = [Document::Notice, Document::Round, Document::Release, Document::Model];
    let document = kinds[usize::from(first >> 1) % kinds.len()];
    if first % 2 == 0 {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        let well_formed =
            text.len() == 128 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let Ok(signature) = text.parse::<Signature>() else { return assert!(!well_formed) };
        assert!(well_formed);
        assert_eq!(signature.to_string(), text);
        let case = ENVELOPE.iter().find(|case| case["kind"] == "signature").unwrap();
        let (key, body) = (
            case["key"].as_str().unwrap().parse().unwrap(),
            hex::decode(case["body"].as_str().unwrap()).unwrap(),
        );
        let believed = verify(&key, document, &TASK.id(), &body, &signature).is_ok();
        assert_eq!(believed, document == Document::Notice && case["signature"] == text);
    } else if let Some((key, rest)) = bytes.split_first_chunk::<32>()
        && let Some((signature, body)) = rest.split_first_chunk::<64>()
    {
        static SIGNED: LazyLock<HashSet<Vec<u8>>> = LazyLock::new(|| all("signature", "signature"));
        let text = hex::encode(signature).parse::<Signature>().unwrap();
        if verify(&VerificationKey(*key), document, &TASK.id(), body, &text).is_ok() {
            assert!(SIGNED.contains(signature.as_slice()), "nobody signed this");
        }
    }
}
