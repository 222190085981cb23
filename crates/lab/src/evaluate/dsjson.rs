//! Logs in DSJSON: one decision of Vowpal Wabbit or Azure Personalizer per line.

use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
};

use incrowd_sim::Place;
use serde_json::{Map, Value};

use super::{
    EvaluateError, Format, Log,
    cells::{Cell, Cells, Names},
    log::{Event, EventArm, place},
};

/// Probabilities are logged as 32-bit floats.
const ROUNDING: f64 = 1e-4;

pub(super) fn read(file: &Path, text: &str) -> Result<Log, EvaluateError> {
    let mut log = Log {
        file: file.to_path_buf(),
        format: Format::Dsjson,
        actions: Names::default(),
        logged: Vec::new(),
        context_fields: Names::default(),
        action_fields: Names::default(),
        texts: Names::default(),
        events: Vec::new(),
        skipped: 0,
    };
    for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
        let content = serde_json::from_str(text).map_err(|error| EvaluateError::Value {
            at: place(file, Some(line)),
            found: format!("no JSON object ({error})"),
            expected: "one JSON object per line".into(),
        })?;
        Record { file, line, content }.read(&mut log)?;
    }
    Ok(log)
}

/// One line.
struct Record<'a> {
    file: &'a Path,
    line: u64,
    content: Map<String, Value>,
}

impl Record<'_> {
    fn read(&self, log: &mut Log) -> Result<(), EvaluateError> {
        let reward_only =
            self.content.contains_key("RewardValue") && !self.content.contains_key("c");
        let unused = self.content.get("_skipLearn") == Some(&Value::Bool(true));
        if reward_only || unused {
            log.skipped += 1;
            return Ok(());
        }
        let Some(Value::Object(shared)) = self.content.get("c") else {
            return Err(self.wrong("c", self.content.get("c"), "an object with the context"));
        };
        for (key, there) in [
            ("_slots", shared.contains_key("_slots")),
            ("_outcomes", self.content.contains_key("_outcomes")),
        ] {
            if there {
                let expected = "a line with one decision (no slots of CCB or slates)";
                return Err(self.value(key, "several decisions".into(), expected));
            }
        }
        let Some(Value::Array(multi)) = shared.get("_multi") else {
            return Err(self.wrong("_multi", shared.get("_multi"), "an array of actions"));
        };
        let chosen = self.chosen(multi.len())?;
        let probabilities = self.probabilities(multi.len())?;
        let event = Event {
            line: self.line,
            chosen,
            reward: -self.number("_label_cost", "a finite cost", f64::is_finite)?,
            propensity: self.propensity(chosen, probabilities.as_deref())?,
            probabilities,
            expansion: self.expansion()?,
            context: self.fields(shared, &mut log.context_fields, &mut log.texts)?,
            arms: Some(multi.iter().map(|arm| self.arm(arm, log)).collect::<Result<_, _>>()?),
        };
        log.events.push(event);
        Ok(())
    }

    /// Index of the chosen action. `_label_Action` and `a` count from 1, `_labelIndex` from 0.
    fn chosen(&self, arms: usize) -> Result<usize, EvaluateError> {
        let expected = format!("an action from 1 to {arms}");
        let mut chosen = None;
        let first = |name| self.content.get(name).and_then(|value| value.get(0));
        for (key, value, base) in [
            ("_label_Action", self.content.get("_label_Action"), 1),
            ("_labelIndex", self.content.get("_labelIndex"), 0),
            ("a", first("a"), 1),
        ] {
            let Some(value) = value else { continue };
            let index = value.as_u64().and_then(|number| number.checked_sub(base));
            let index = index.filter(|&index| index < arms as u64).map(|index| index as usize);
            match (index, chosen) {
                (Some(index), None) => chosen = Some(index),
                (Some(index), Some(before)) if index == before => {}
                (None, _) => {
                    let expected = if base == 0 {
                        format!("an index from 0 to {}", arms.saturating_sub(1))
                    } else {
                        expected
                    };
                    return Err(self.wrong(key, Some(value), &expected));
                }
                (_, Some(before)) => {
                    let expected =
                        format!("action {}, which was said to be chosen", before as u64 + base);
                    return Err(self.wrong(key, Some(value), &expected));
                }
            }
        }
        chosen.ok_or_else(|| self.wrong("_label_Action", None, &expected))
    }

    /// The probabilities of all arms, if the line has them.
    fn probabilities(&self, arms: usize) -> Result<Option<Box<[f64]>>, EvaluateError> {
        let (Some(a), Some(p)) = (self.content.get("a"), self.content.get("p")) else {
            return Ok(None);
        };
        let expected = format!("an array of different actions from 1 to {arms}");
        let Some(actions) = a.as_array() else {
            return Err(self.wrong("a", Some(a), &expected));
        };
        let expected_p = format!("an array of {} probabilities that add up to 1", actions.len());
        let Some(numbers) = p.as_array().filter(|numbers| numbers.len() == actions.len()) else {
            return Err(self.wrong("p", Some(p), &expected_p));
        };
        let (mut probabilities, mut seen) = (vec![0.0; arms], HashSet::new());
        for (action, number) in actions.iter().zip(numbers) {
            let index = action.as_u64().filter(|index| (1..=arms as u64).contains(index));
            let Some(index) = index.filter(|&index| seen.insert(index)) else {
                return Err(self.wrong("a", Some(action), &expected));
            };
            let Some(probability) = number.as_f64().filter(|p| (0.0..=1.0 + ROUNDING).contains(p))
            else {
                return Err(self.wrong("p", Some(number), &expected_p));
            };
            probabilities[index as usize - 1] = probability;
        }
        let sum: f64 = probabilities.iter().sum();
        if (sum - 1.0).abs() > 10.0 * ROUNDING {
            return Err(self.value("p", format!("a sum of {sum}"), &expected_p));
        }
        Ok(Some(probabilities.into()))
    }

    fn propensity(
        &self,
        chosen: usize,
        probabilities: Option<&[f64]>,
    ) -> Result<f64, EvaluateError> {
        const RULE: &str = "a probability above 0 and at most 1";
        let allowed = |p: f64| p > 0.0 && p <= 1.0 + ROUNDING;
        match (self.content.contains_key("_label_probability"), probabilities) {
            (false, Some(probabilities)) if allowed(probabilities[chosen]) => {
                Ok(probabilities[chosen])
            }
            (false, Some(probabilities)) => {
                Err(self.value("p", probabilities[chosen].to_string(), RULE))
            }
            (_, probabilities) => {
                let propensity = self.number("_label_probability", RULE, allowed)?;
                let other = probabilities.map_or(propensity, |all| all[chosen]);
                if (propensity - other).abs() > ROUNDING {
                    let expected = format!("{other} as in p");
                    return Err(self.value(
                        "_label_probability",
                        propensity.to_string(),
                        &expected,
                    ));
                }
                Ok(propensity)
            }
        }
    }

    /// An event is dropped from the log with probability `pdrop`.
    fn expansion(&self) -> Result<f64, EvaluateError> {
        if !self.content.contains_key("pdrop") {
            return Ok(1.0);
        }
        let rule = "a probability from 0 and below 1";
        let drop = self.number("pdrop", rule, |drop| (0.0..1.0).contains(&drop))?;
        Ok(1.0 / (1.0 - drop))
    }

    /// An action is named by its tag, or else by all that is logged of it.
    fn arm(&self, arm: &Value, log: &mut Log) -> Result<EventArm, EvaluateError> {
        let Value::Object(content) = arm else {
            return Err(self.wrong("_multi", Some(arm), "an object for each action"));
        };
        let action = match content.get("_tag") {
            Some(Value::String(tag)) => log.actions.number(tag),
            _ => log.actions.number(&arm.to_string()),
        };
        let fields = self.fields(content, &mut log.action_fields, &mut log.texts)?;
        Ok(EventArm { action, fields })
    }

    /// Features, named by their path: `namespace.feature`.
    fn fields(
        &self,
        content: &Map<String, Value>,
        names: &mut Names,
        texts: &mut Names,
    ) -> Result<Cells, EvaluateError> {
        let mut cells = BTreeMap::new();
        // Keys with an underscore are the format's own, but for texts.
        for (key, value) in content.iter().filter(|(key, _)| key == &"_text" || !special(key)) {
            self.flatten(key, value, &mut cells, names, texts)?;
        }
        Ok(cells.into_iter().collect())
    }

    fn flatten(
        &self,
        path: &str,
        value: &Value,
        cells: &mut BTreeMap<u32, Cell>,
        names: &mut Names,
        texts: &mut Names,
    ) -> Result<(), EvaluateError> {
        let cell = match value {
            Value::Null => return Ok(()),
            Value::Bool(flag) => Cell::Flag(*flag),
            Value::String(text) => Cell::Text(texts.number(text)),
            Value::Number(number) => match number.as_f64().filter(|number| number.is_finite()) {
                Some(number) => Cell::Number(number),
                None => return Err(self.wrong(path, Some(value), "a finite number")),
            },
            Value::Object(content) => {
                let own = content.iter().filter(|(key, _)| key == &"_text" || !special(key));
                for (key, value) in own {
                    self.flatten(&format!("{path}.{key}"), value, cells, names, texts)?;
                }
                return Ok(());
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    // A namespace may be a list of objects, as Personalizer writes it.
                    let name =
                        if item.is_object() { path.to_owned() } else { format!("{path}.{index}") };
                    self.flatten(&name, item, cells, names, texts)?;
                }
                return Ok(());
            }
        };
        let mut field = names.number(path);
        // The same feature once more.
        for copy in 2.. {
            if !cells.contains_key(&field) {
                break;
            }
            field = names.number(&format!("{path}#{copy}"));
        }
        cells.insert(field, cell);
        Ok(())
    }

    fn number(
        &self,
        key: &str,
        expected: &str,
        allowed: impl Fn(f64) -> bool,
    ) -> Result<f64, EvaluateError> {
        let value = self.content.get(key);
        let number = value.and_then(Value::as_f64).filter(|&number| allowed(number));
        number.ok_or_else(|| self.wrong(key, value, expected))
    }

    fn wrong(&self, key: &str, found: Option<&Value>, expected: &str) -> EvaluateError {
        let found = found.map_or_else(|| "nothing".to_owned(), short);
        self.value(key, found, expected)
    }

    fn value(&self, key: &str, found: String, expected: &str) -> EvaluateError {
        let at = Place { column: Some(key.to_owned()), ..place(self.file, Some(self.line)) };
        EvaluateError::Value { at, found, expected: expected.to_owned() }
    }
}

fn special(key: &str) -> bool {
    key.starts_with('_')
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
