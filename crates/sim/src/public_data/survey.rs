use std::collections::HashSet;

use incrowd_device::{FeatureMapConfig, Field, FieldKind, FieldProblem, Fields, Value};

use super::{Examples, PublicDataError};

/// Share of clipped values above which a range is called wrong.
const MANY_CLIPPED: f64 = 0.01;

/// What a feature map makes of a sample of people.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Survey {
    /// Rows of the sample.
    pub rows: usize,
    /// Largest norm of features before they are scaled.
    pub largest_norm: f64,
    /// The `scale` that the map has.
    pub scale: f64,
    /// The largest `scale`, up to 6 digits, with which no features of the sample are shortened;
    /// none if that of a map without `scale` is as large, which never shortens any.
    pub proposed_scale: Option<f64>,
    /// Whether a field of one action has different values for different people.
    pub own_fields_vary: bool,
    /// What was found about each field.
    pub fields: Vec<FieldSurvey>,
}

/// What a sample has in one field.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FieldSurvey {
    /// `context` or `action`.
    pub side: &'static str,
    /// Its name.
    pub name: String,
    /// Values that were looked at: rows, or rows times actions.
    pub values: usize,
    /// Values that are missing.
    pub missing: usize,
    /// Values outside of the range.
    pub clipped: usize,
    /// Values that are not among those of the category.
    pub unlisted: usize,
    /// Whether all are the same.
    pub constant: bool,
    /// Values of the category that nobody has.
    pub never: Vec<String>,
}

/// Looks at all rows. Rewards do not matter.
///
/// # Privacy
/// What is chosen from it is published with the map: take public or made-up rows.
pub fn survey(examples: &Examples<'_>) -> Result<Survey, PublicDataError> {
    let map = examples.map();
    let config = map.config();
    let counts = |side: &'static str, fields: &'_ [Field]| -> Vec<Count> {
        fields.iter().map(|field| Count::new(side, field)).collect()
    };
    let mut context = counts("context", &config.context);
    let mut own = counts("action", &config.action);
    let mut first: Option<Vec<Fields>> = None;
    let (mut largest_norm, mut own_fields_vary) = (0f64, false);
    for row in 0..examples.rows() {
        let fields = examples.fields(row)?;
        for (count, field) in context.iter_mut().zip(&config.context) {
            count.add(field, &fields.context);
        }
        for action in &fields.actions {
            for (count, field) in own.iter_mut().zip(&config.action) {
                count.add(field, action);
            }
            largest_norm = largest_norm.max(map.unscaled_norm(&fields.context, action));
        }
        own_fields_vary |= first.get_or_insert_with(|| fields.actions.clone()) != &fields.actions;
    }
    let proposed = ((1e6 / largest_norm).floor() / 1e6).min(1.0);
    let safe = FeatureMapConfig { scale: None, ..config.clone() }.check()?.scale();
    let fields = context.into_iter().chain(own).map(Count::done);
    Ok(Survey {
        rows: examples.rows(),
        largest_norm,
        scale: map.scale(),
        proposed_scale: (proposed > safe).then_some(proposed),
        own_fields_vary,
        fields: fields.collect(),
    })
}

/// A field while rows are counted.
struct Count {
    survey: FieldSurvey,
    first: Option<Value>,
    differs: bool,
    seen: HashSet<String>,
    listed: Vec<String>,
}

impl Count {
    fn new(side: &'static str, field: &Field) -> Self {
        let listed = match &field.kind {
            FieldKind::Category { values } => values.clone(),
            _ => Vec::new(),
        };
        let survey = FieldSurvey {
            side,
            name: field.name.clone(),
            values: 0,
            missing: 0,
            clipped: 0,
            unlisted: 0,
            constant: false,
            never: Vec::new(),
        };
        Self { survey, first: None, differs: false, seen: HashSet::new(), listed }
    }

    fn add(&mut self, field: &Field, fields: &Fields) {
        self.survey.values += 1;
        match field.problem(fields) {
            Some(FieldProblem::Missing(_)) => self.survey.missing += 1,
            Some(FieldProblem::Clipped(_)) => self.survey.clipped += 1,
            Some(FieldProblem::UnknownCategory(_)) => self.survey.unlisted += 1,
            _ => {}
        }
        let Some(value) = fields.get(&field.name) else {
            self.differs |= self.first.is_some();
            return;
        };
        self.differs |= self.first.get_or_insert_with(|| value.clone()) != value;
        if let Value::Text(text) = value
            && !self.listed.is_empty()
            && !self.seen.contains(text)
        {
            self.seen.insert(text.clone());
        }
    }

    fn done(self) -> FieldSurvey {
        let Self { mut survey, differs, seen, listed, .. } = self;
        // A value that is missing here and there differs too.
        survey.constant = survey.values > 1 && !differs && survey.missing == 0;
        survey.never = listed.into_iter().filter(|value| !seen.contains(value)).collect();
        survey
    }
}

impl Survey {
    /// What is wrong with the map, in words.
    pub fn warnings(&self) -> Vec<String> {
        self.fields.iter().flat_map(FieldSurvey::warnings).collect()
    }
}

impl FieldSurvey {
    fn warnings(&self) -> Vec<String> {
        let field = format!("{} field {:?}", self.side, self.name);
        let share = |count: usize| 100.0 * count as f64 / self.values as f64;
        let mut warnings = Vec::new();
        if self.missing + self.unlisted == self.values {
            return vec![format!(
                "{field} is unused: in every row it is missing or has a value that is not listed"
            )];
        }
        if self.constant {
            warnings.push(format!("{field} is constant: it tells nobody apart"));
        }
        if share(self.clipped) > 100.0 * MANY_CLIPPED {
            warnings.push(format!(
                "{field} is clipped in {:.1}% of the sample: widen its range",
                share(self.clipped)
            ));
        }
        if self.unlisted > 0 {
            warnings.push(format!(
                "{field} has a value that is not listed in {:.1}% of the sample",
                share(self.unlisted)
            ));
        }
        if self.missing > 0 {
            warnings
                .push(format!("{field} is missing in {:.1}% of the sample", share(self.missing)));
        }
        if !self.constant && !self.never.is_empty() {
            let quoted: Vec<String> =
                self.never.iter().take(10).map(|value| format!("{value:?}")).collect();
            let more = match self.never.len() - quoted.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            warnings.push(format!(
                "{field} has values that nobody in the sample has: {}{more}",
                quoted.join(", ")
            ));
        }
        warnings
    }
}
