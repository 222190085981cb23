//! R17 and R20 at the level of bytes: what is sealed opens only as it was sealed, what is signed is
//! believed only as it was signed.

use incrowd_envelope::{
    Document, EnvelopeError, OpeningKey, SealedHeader, Signed, SigningKey, seal, sealed_len, verify,
};
use incrowd_protocol::{
    Closes, FlipProbability, KeyState, Law, Layout, Mechanism, MechanismConfig, ReportId,
    SealingKey, Stage, TaskId, VerificationKeys,
};

fn mechanism(grace: u32) -> Mechanism {
    let flip = FlipProbability::new(1, 2).unwrap();
    MechanismConfig {
        dimension: 2,
        context_bound: 1.0,
        schedule: vec![Stage { rounds: 10, size: 100, window: None, law: Law::bits(1, flip) }],
        layout: Layout::Shared,
        closes: Closes::Count { grace },
        central_delta: 1e-6,
        participations: 1,
        honest_fraction: 1.0,
    }
    .check()
    .unwrap()
}

fn task(grace: u32, shuffler: &SigningKey, bandit: &SigningKey) -> TaskId {
    let keys = VerificationKeys {
        shuffler: shuffler.verification_key(),
        bandit: bandit.verification_key(),
    };
    TaskId::of(&mechanism(grace), &keys)
}

#[test]
fn r17_a_sealed_report_opens_only_as_it_was_sealed() {
    let (shuffler, bandit) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
    let id = task(0, &shuffler, &bandit);
    let secret = OpeningKey::generate().unwrap();
    let key = SealingKey { id: 7, key: secret.public(), state: KeyState::Active };
    let report = b"the bytes of a report";
    let sealed = seal(&id, &key, 3, ReportId([9; 16]), report).unwrap();
    assert_eq!(sealed.len(), sealed_len(report.len()));
    let header = SealedHeader::decode(&sealed).unwrap();
    assert_eq!(header, SealedHeader { key: 7, round: 3, id: ReportId([9; 16]) });
    assert_eq!(secret.open(&id, &sealed).unwrap(), report);

    // Every flipped bit is refused: in version, key, round, id, encapsulated key, ciphertext and
    // tag.
    for bit in 0..sealed.len() * 8 {
        let mut changed = sealed.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(secret.open(&id, &changed).is_err(), "bit {bit}");
    }
    // So is another length, task (other mechanism, other keys), and key.
    for length in 0..sealed.len() {
        assert!(secret.open(&id, &sealed[..length]).is_err());
    }
    assert!(secret.open(&id, &[sealed.as_slice(), &[0]].concat()).is_err());
    for other in [task(1, &shuffler, &bandit), task(0, &bandit, &shuffler)] {
        assert_eq!(secret.open(&other, &sealed), Err(EnvelopeError::CannotOpen));
    }
    assert!(OpeningKey::generate().unwrap().open(&id, &sealed).is_err());
    // A secret that was written down is the same key.
    let again = OpeningKey::from_bytes(&secret.to_bytes()).unwrap();
    assert_eq!(again.open(&id, &sealed).unwrap(), report);
}

#[test]
fn r17_sealing_twice_shows_nothing_in_common() {
    let key = SigningKey::generate().unwrap();
    let id = task(0, &key, &key);
    let secret = OpeningKey::generate().unwrap();
    let public = SealingKey { id: 1, key: secret.public(), state: KeyState::Active };
    let [one, two] = [0, 1].map(|_| seal(&id, &public, 1, ReportId([1; 16]), b"same").unwrap());
    assert_ne!(one[22..], two[22..]);
}

#[test]
fn r20_a_signature_is_for_one_document_of_one_task() {
    let (key, other) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
    let id = task(0, &key, &other);
    let signature = key.sign(Document::Model, &id, b"body");
    let check = |key: &SigningKey, document, id: &TaskId, body: &[u8]| {
        verify(&key.verification_key(), document, id, body, &signature)
    };
    assert_eq!(check(&key, Document::Model, &id, b"body"), Ok(()));
    assert!(check(&key, Document::Round, &id, b"body").is_err());
    assert!(check(&key, Document::Model, &task(1, &key, &other), b"body").is_err());
    assert!(check(&key, Document::Model, &id, b"bodY").is_err());
    assert!(check(&other, Document::Model, &id, b"body").is_err());
    let text = signature.to_string();
    assert_eq!(text.parse(), Ok(signature));
    assert!(text.to_uppercase().parse::<incrowd_envelope::Signature>().is_err());
    let again = SigningKey::from_bytes(&key.to_bytes());
    assert_eq!(again.sign(Document::Model, &id, b"body"), signature);
}

#[test]
fn r20_a_signed_document_survives_a_file_and_no_change_does() {
    let (shuffler, bandit) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
    let id = task(0, &shuffler, &bandit);
    let signed = Signed::new(b"{\"a\": 1}".to_vec(), &shuffler, Document::Notice, &id);
    let text = serde_json::to_string(&signed).unwrap();
    assert!(text.contains(r#""body":"{\"a\": 1}""#), "{text}");
    let again: Signed = serde_json::from_str(&text).unwrap();
    assert_eq!(again, signed);
    let key = shuffler.verification_key();
    assert_eq!(again.verify(&key, Document::Notice, &id), Ok(()));
    assert_eq!(again.verify(&key, Document::Round, &id), Err(EnvelopeError::Signature));
    let changed: Signed = serde_json::from_str(&text.replace(": 1", ": 2")).unwrap();
    assert_eq!(changed.verify(&key, Document::Notice, &id), Err(EnvelopeError::Signature));
    let digits = signed.signature.to_string();
    for bad in [digits.to_uppercase(), digits[2..].to_owned(), format!("{digits}00")] {
        assert!(serde_json::from_str::<Signed>(&text.replace(&digits, &bad)).is_err(), "{bad}");
    }
}
