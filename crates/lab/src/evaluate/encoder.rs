use std::collections::{BTreeMap, BTreeSet};

use super::{
    EvaluateError, Log,
    cells::{Cell, Cells, Names},
    log::Event,
};

/// Up to this many different texts of a field have a column each.
const LISTED: usize = 32;
/// Columns of a field with more texts than that.
const BUCKETS: u32 = 32;
/// Columns that a regression may have.
const MOST_COLUMNS: usize = 1000;

/// From an event and an arm to the columns of the reward model: a constant 1, the context, the
/// arm's own fields.
///
/// Numbers and flags are standardised with mean and variance of the log (missing ones are at the
/// mean, constant ones 0). A field with at most 32 different texts has a column for each, 1 where
/// it is equal; one with more is hashed to 32 columns with entries +1 and -1. Only contexts are
/// used, never rewards, so cross-fitting stays honest.
pub(super) struct Encoder {
    context: Vec<FieldCode>,
    action: Vec<FieldCode>,
    /// The hash of each text, for hashed fields.
    hashes: Vec<u32>,
    /// Columns of the constant and the context.
    shared: usize,
    columns: usize,
}

/// The columns of one field.
#[derive(Default)]
struct FieldCode {
    number: Option<Scale>,
    texts: Option<Texts>,
}

struct Scale {
    column: usize,
    mean: f64,
    /// 0 for a constant.
    inverse_deviation: f64,
}

enum Texts {
    Listed(BTreeMap<u32, usize>),
    Hashed(usize),
}

impl Encoder {
    /// For a log. With `chosen` only these fields of the context are used.
    pub(super) fn new(log: &Log, chosen: Option<&[String]>) -> Result<Self, EvaluateError> {
        let known = log.context_fields.list();
        if let Some(field) = chosen.unwrap_or(&[]).iter().find(|field| !known.contains(field)) {
            let (field, known) = (field.clone(), known.to_vec());
            return Err(EvaluateError::ContextField { field, known });
        }
        let contexts = log.events.iter().map(|event| &event.context);
        let arms = log.events.iter().filter_map(|event| event.arms.as_ref());
        let arms = arms.flat_map(|arms| arms.iter().map(|arm| &arm.fields));
        let mut columns = 1;
        let used = |name: &String| chosen.is_none_or(|chosen| chosen.contains(name));
        let context = codes(contexts, &log.context_fields, used, &mut columns);
        let shared = columns;
        let action = codes(arms, &log.action_fields, |_| true, &mut columns);
        if columns > MOST_COLUMNS {
            return Err(EvaluateError::Columns { at: log.place(), found: columns });
        }
        let hashes = log.texts.list().iter().map(|text| fnv1a(text)).collect();
        Ok(Self { context, action, hashes, shared, columns })
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// The constant and the context; the rest is 0. `z` has as many entries as there are columns.
    pub(super) fn write_context(&self, event: &Event, z: &mut [f64]) {
        z.fill(0.0);
        z[0] = 1.0;
        self.write(&self.context, &event.context, z);
    }

    /// Replaces the arm's own fields.
    pub(super) fn write_arm(&self, event: &Event, arm: usize, z: &mut [f64]) {
        if let Some(arms) = &event.arms {
            z[self.shared..].fill(0.0);
            self.write(&self.action, &arms[arm].fields, z);
        }
    }

    fn write(&self, codes: &[FieldCode], cells: &Cells, z: &mut [f64]) {
        for &(field, cell) in cells {
            let code = &codes[field as usize];
            match (number(cell), cell) {
                (Some(number), _) => {
                    if let Some(scale) = &code.number {
                        z[scale.column] = (number - scale.mean) * scale.inverse_deviation;
                    }
                }
                (None, Cell::Text(text)) => match &code.texts {
                    Some(Texts::Listed(columns)) => z[columns[&text]] = 1.0,
                    Some(Texts::Hashed(first)) => {
                        let hash = self.hashes[text as usize];
                        let sign = if hash.is_multiple_of(2) { 1.0 } else { -1.0 };
                        z[first + ((hash >> 1) % BUCKETS) as usize] = sign;
                    }
                    None => {}
                },
                (None, _) => {}
            }
        }
    }
}

/// What is known of a field after all events.
#[derive(Default)]
struct Seen {
    count: f64,
    mean: f64,
    squares: f64,
    texts: BTreeSet<u32>,
}

fn codes<'a>(
    all: impl Iterator<Item = &'a Cells>,
    names: &Names,
    used: impl Fn(&String) -> bool,
    columns: &mut usize,
) -> Vec<FieldCode> {
    let mut seen: Vec<Seen> = names.list().iter().map(|_| Seen::default()).collect();
    for cells in all {
        for &(field, cell) in cells {
            let seen = &mut seen[field as usize];
            match (number(cell), cell) {
                (Some(number), _) => {
                    // Welford: stable, in one pass.
                    seen.count += 1.0;
                    let difference = number - seen.mean;
                    seen.mean += difference / seen.count;
                    seen.squares += difference * (number - seen.mean);
                }
                (None, Cell::Text(text)) => _ = seen.texts.insert(text),
                (None, _) => {}
            }
        }
    }
    let mut take = |count: usize| {
        let first = *columns;
        *columns += count;
        first
    };
    let mut code = |(name, seen): (&String, Seen)| {
        if !used(name) {
            return FieldCode::default();
        }
        let number = (seen.count > 0.0).then(|| {
            let deviation = (seen.squares / seen.count).sqrt();
            let varies = deviation > 1e-12 * seen.mean.abs() && deviation.is_finite();
            let inverse_deviation = if varies { 1.0 / deviation } else { 0.0 };
            Scale { column: take(1), mean: seen.mean, inverse_deviation }
        });
        let texts = match seen.texts.len() {
            0 => None,
            1..=LISTED => {
                let first = take(seen.texts.len());
                Some(Texts::Listed(seen.texts.into_iter().zip(first..).collect()))
            }
            _ => Some(Texts::Hashed(take(BUCKETS as usize))),
        };
        FieldCode { number, texts }
    };
    names.list().iter().zip(seen).map(&mut code).collect()
}

/// Flags are 0 and 1.
fn number(cell: Cell) -> Option<f64> {
    match cell {
        Cell::Number(number) => Some(number),
        Cell::Flag(flag) => Some(f64::from(u8::from(flag))),
        Cell::Text(_) => None,
    }
}

/// 32-bit FNV-1a, as in feature maps.
fn fnv1a(text: &str) -> u32 {
    let step = |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
    text.bytes().fold(2_166_136_261, step)
}
