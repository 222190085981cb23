//! What the fuzz targets do. Each function feeds arbitrary bytes to one decoder and checks what
//! must hold of everything it accepts.
#![forbid(unsafe_code)]

mod batch;
mod bytes;
mod documents;
mod known;
mod learning;
mod tasks;

pub use batch::{batch, snapshot};
pub use bytes::{bulk, report, sealed, signature};
pub use documents::{model, notice, round_notice, sums};
pub use learning::{features, participation, statistics};
pub use tasks::{task_json, task_toml};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// What a type does with fields that it does not know.
#[derive(Clone, Copy, PartialEq)]
enum Unknown {
    /// Every one is refused, at every depth.
    Refused,
    /// Every one is skipped, but those in the field `task` are refused.
    SkippedOutsideTask,
    /// It has no fields of its own.
    NoFields,
}

/// Reads JSON, and checks that what was accepted is written and read back as the same value, twice
/// to the same text; that nothing that the input says is lost; and what becomes of fields that are
/// too many or missing.
fn json<T>(data: &[u8], unknown: Unknown) -> Option<T>
where
    T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug,
{
    let value: T = serde_json::from_slice(data).ok()?;
    let written = serde_json::to_string(&value).expect("what was read can be written");
    let again: T = serde_json::from_str(&written).expect("what was written can be read");
    assert_eq!(value, again);
    assert_eq!(written, serde_json::to_string(&again).unwrap());
    let kept: Value = serde_json::from_str(&written).unwrap();
    let said: Value = serde_json::from_slice(data).unwrap();
    match unknown {
        Unknown::SkippedOutsideTask => {}
        _ => assert!(covers(&kept, &said), "{said} became {kept}"),
    }
    if unknown != Unknown::NoFields {
        for place in objects(&kept) {
            let mut changed = kept.clone();
            changed.pointer_mut(&place).unwrap()[UNKNOWN] = Value::Null;
            let read = T::deserialize(&changed).ok();
            let skipped = unknown == Unknown::SkippedOutsideTask && !place.starts_with("/task");
            assert_eq!(read.as_ref(), skipped.then_some(&value), "unknown field in {place:?}");
            let names =
                kept.pointer(&place).and_then(Value::as_object).into_iter().flat_map(Map::keys);
            for name in names.filter(|name| !OPTIONAL.contains(&name.as_str())) {
                let mut changed = kept.clone();
                changed.pointer_mut(&place).and_then(Value::as_object_mut).unwrap().remove(name);
                assert!(T::deserialize(&changed).is_err(), "{place:?} is accepted without {name}");
            }
        }
    }
    Some(value)
}

const UNKNOWN: &str = "unknown";

/// Fields that may be left out.
const OPTIONAL: [&str; 22] = [
    "learner",
    "policy",
    "selection",
    "smallest_batch",
    "plain_reports",
    "model_url",
    "gateway_keys",
    "bias",
    "context",
    "action",
    "interactions",
    "actions",
    "prior",
    "discount",
    "slots",
    "shared",
    "assignments",
    "model",
    "spare_slots",
    "scale",
    "context_bound",
    "cross_factor",
];

/// What is not written where it has this value.
fn is_left_out(name: &str, value: &Value) -> bool {
    match name {
        "prior" | "scale" | "shared" => value.is_null(),
        "slots" | "actions" | "assignments" | "cross_factor" => {
            value.is_null() || value.as_array().is_some_and(Vec::is_empty)
        }
        "discount" => value.as_f64() == Some(1.0),
        "model" => value == "shared",
        "spare_slots" => value.as_u64() == Some(0),
        _ => false,
    }
}

/// JSON pointers to the objects of a value, the outermost first; of a list, to the first and the
/// last.
fn objects(value: &Value) -> impl Iterator<Item = String> {
    fn visit(value: &Value, place: &str, found: &mut Vec<String>) {
        if let Value::Object(fields) = value {
            found.push(place.to_owned());
            fields.iter().for_each(|(name, value)| visit(value, &format!("{place}/{name}"), found));
        }
        if let Value::Array(items) = value {
            let ends = [0, items.len().saturating_sub(1)];
            let ends = if items.len() < 2 { &ends[..items.len()] } else { &ends };
            ends.iter().for_each(|&i| visit(&items[i], &format!("{place}/{i}"), found));
        }
    }
    let mut found = Vec::new();
    visit(value, "", &mut found);
    found.into_iter()
}

/// Whether `kept` has everything that `said` has. Defaults may have been added, numbers written in
/// another way, and a struct may have been given as the list of its fields.
fn covers(kept: &Value, said: &Value) -> bool {
    match (kept, said) {
        (Value::Object(kept), Value::Object(said)) => {
            said.iter().all(|(name, said)| match kept.get(name) {
                Some(kept) => covers(kept, said),
                None => is_left_out(name, said),
            })
        }
        (Value::Object(_), Value::Array(_)) => true,
        (Value::Array(kept), Value::Array(said)) => {
            kept.len() == said.len() && kept.iter().zip(said).all(|(kept, said)| covers(kept, said))
        }
        (Value::Number(kept), Value::Number(said)) => {
            kept.as_f64().map(f64::to_bits) == said.as_f64().map(f64::to_bits)
        }
        (kept, said) => kept == said,
    }
}
