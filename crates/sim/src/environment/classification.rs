use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use incrowd_device::Arm;
use incrowd_protocol::{Blocks, Dimension, Layout};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use serde::{Deserialize, Serialize};

use crate::coordinates::for_each_coordinate;

use super::{
    DataError, Environment, Person, draw,
    table::{self, Table},
    vectors::ArmVectors,
};

/// Which columns an arm's features come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Features {
    /// All arms see the same columns, each in its own block of one long vector: with q columns,
    /// bias included, and K arms there are q K dimensions.
    #[default]
    Shared,
    /// All arms see the same columns, and each has a parameter of its own for them: q dimensions
    /// and K slots.
    PerAction,
    /// Columns named `class:feature` have one weight for all arms, as in `per-arm`; the others, and
    /// the bias, have one for each arm.
    Hybrid,
    /// Columns named `class:feature` belong to the arm of that class and stand at the same place
    /// for every arm; the others are shared by all arms. With s shared ones and o of each arm there
    /// are 1 + s + o dimensions.
    PerArm,
}

/// A file of labelled rows, as a bandit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassificationConfig {
    /// A CSV file with a header.
    pub file: PathBuf,
    /// The name of the column of labels. Every other named column is a feature and must be numeric.
    pub label: String,
    /// Which columns an arm's features come from.
    #[serde(default)]
    pub features: Features,
    /// Another CSV file with the same columns: rows that are public. They are nobody of the run; a
    /// prior is made from them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public: Option<PathBuf>,
    /// Random projection to this many dimensions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<u32>,
    /// Draws the projection; the same for all runs.
    #[serde(default = "projection_seed")]
    pub projection_seed: u64,
}

/// The seed of a projection if none is configured.
pub(super) fn projection_seed() -> u64 {
    1
}

/// Labelled data as a bandit: an arm per class, in alphabetical order, and a reward of 1 for the
/// row's own class, else 0.
///
/// A person is a row, drawn uniformly with replacement. Columns are standardised with the file's
/// mean and variance, a bias of 1 comes first, and all is divided by the largest norm in the file,
/// so |x| <= 1. Features named `class:feature` are standardised over all arms together. Then comes
/// the projection, if any: a matrix of independent normal entries, divided by the largest norm that
/// it gives. The mean reward is a 0 or a 1, so no linear model is exact: this measures how an
/// algorithm does when the model is wrong.
///
/// # Privacy
/// Mean, variance and largest norm are those of the data, and the list of classes too: nothing of
/// that is private. That is fine for an experiment with a public file. In production the ranges are
/// declared before any data is seen (`docs/formats.md`, feature maps).
#[derive(Debug)]
pub struct Classification {
    classes: Vec<String>,
    /// Of the people, then of the public rows.
    labels: Vec<usize>,
    people: usize,
    vectors: ArmVectors,
}

impl Classification {
    /// Reads and checks the file.
    pub fn load(config: &ClassificationConfig) -> Result<Self, DataError> {
        let public = config.public.as_deref().map(table::read).transpose()?;
        Self::parse(config, &table::read(&config.file)?, public.as_deref())
    }

    /// Checks the file's bytes.
    pub(super) fn parse(
        config: &ClassificationConfig,
        bytes: &[u8],
        public: Option<&[u8]>,
    ) -> Result<Self, DataError> {
        let table = Table::parse(&config.file, bytes)?;
        let people = table.rows();
        let table = match (&config.public, public) {
            (Some(file), Some(bytes)) => table.stack(&Table::parse(file, bytes)?)?,
            _ => table,
        };
        let label = table.find(&config.label)?;
        let (classes, labels) = read_labels(&table, label)?;
        let named = |&column: &usize| column != label && !table.columns()[column].is_empty();
        let features: Vec<usize> = (0..table.columns().len()).filter(named).collect();
        if features.is_empty() {
            return Err(DataError::NoFeatures(table.header_place()));
        }
        let vectors = match config.features {
            Features::Shared => {
                let columns = features.into_iter().map(|column| table.numbers(column));
                ArmVectors::blocks(columns.collect::<Result<_, _>>()?, table.rows(), classes.len())
            }
            Features::PerAction => {
                let columns = features.into_iter().map(|column| table.numbers(column));
                ArmVectors::slots(columns.collect::<Result<_, _>>()?, table.rows(), classes.len())
            }
            Features::PerArm => per_arm(&table, &features, &classes)?,
            Features::Hybrid => per_arm(&table, &features, &classes)?.into_hybrid(),
        };
        let vectors = vectors.project(config.project, config.projection_seed, table.place())?;
        Ok(Self { classes, labels, people, vectors })
    }

    /// Number of features.
    pub fn dimension(&self) -> usize {
        self.vectors.dimension()
    }

    /// How features are weighted.
    pub fn layout(&self) -> Layout {
        self.vectors.layout()
    }

    /// Number of arms.
    pub fn arms(&self) -> usize {
        self.vectors.arms()
    }

    /// The classes, in the order of the arms.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Rows in the file of people.
    pub fn rows(&self) -> usize {
        self.people
    }

    /// The mean statistic of a report about a public row, each action as likely as any other, in the
    /// order of a report's coordinates; none without public rows.
    pub fn public_statistic(&self) -> Option<Vec<f64>> {
        let rows = self.people..self.labels.len();
        if rows.is_empty() {
            return None;
        }
        let dimension = Dimension::new(self.dimension() as u32).ok()?;
        let blocks = Blocks::new(dimension, self.layout()).ok()?;
        let reports = (rows.len() * self.arms()) as f64;
        let mut statistic = vec![0.0; blocks.coordinates()];
        let mut arms = Vec::new();
        for row in rows {
            self.vectors.write(row, &mut arms);
            for (arm, x) in arms.chunks_exact(self.dimension()).enumerate() {
                let reward = f64::from(u8::from(arm == self.labels[row]));
                let slot = if blocks.slots() > 0 { arm as u32 } else { 0 };
                for_each_coordinate(blocks, Arm { slot, features: x }, reward, |place, value| {
                    statistic[place] += value / reports;
                });
            }
        }
        Some(statistic)
    }

    /// People drawn with `seed`.
    pub fn people(self: &Arc<Self>, seed: u64) -> ClassificationPeople {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        ClassificationPeople { data: Arc::clone(self), row: None, rng }
    }
}

/// The rows of a [`Classification`], one after the other as people.
#[derive(Debug, Clone)]
pub struct ClassificationPeople {
    data: Arc<Classification>,
    row: Option<usize>,
    rng: ChaCha8Rng,
}

impl ClassificationPeople {
    /// The current person's row in the file, from 0; none before the first.
    pub fn row(&self) -> Option<usize> {
        self.row
    }
}

impl Environment for ClassificationPeople {
    fn dimension(&self) -> usize {
        self.data.dimension()
    }

    fn layout(&self) -> Layout {
        self.data.layout()
    }

    fn next_person(&mut self, person: &mut Person) {
        let row = draw::index(&mut self.rng, self.data.rows());
        self.row = Some(row);
        self.data.vectors.write(row, &mut person.arms);
        person.means.clear();
        person.means.resize(self.data.arms(), 0.0);
        person.means[self.data.labels[row]] = 1.0;
    }

    fn reward(&mut self, arm: usize) -> Option<f64> {
        let label = self.data.labels[self.row?];
        (arm < self.data.arms()).then(|| f64::from(u8::from(arm == label)))
    }
}

/// The classes, and for every row the index of its class.
fn read_labels(table: &Table, label: usize) -> Result<(Vec<String>, Vec<usize>), DataError> {
    let mut classes = BTreeSet::new();
    for row in 0..table.rows() {
        let class = table.text(row, label);
        if class.is_empty() {
            return Err(DataError::NoLabel(table.field_place(row, label)));
        }
        classes.insert(class);
    }
    let at = || table.column_place(&table.columns()[label]);
    match classes.len() {
        1 => return Err(DataError::OneClass { at: at(), found: classes.into_iter().collect() }),
        2..=100_000 => {}
        found => return Err(DataError::Classes { at: at(), found }),
    }
    let index: BTreeMap<&str, usize> = classes.iter().copied().zip(0..).collect();
    let labels = (0..table.rows()).map(|row| index[table.text(row, label)]).collect();
    Ok((classes.into_iter().map(str::to_owned).collect(), labels))
}

fn per_arm(table: &Table, features: &[usize], classes: &[String]) -> Result<ArmVectors, DataError> {
    let mut shared = Vec::new();
    // In the order of the file, which is that of the first arm that has the feature.
    let mut own: Vec<&str> = Vec::new();
    for &column in features {
        let name = table.columns()[column].as_str();
        match own_feature(name, classes) {
            Some(feature) if own.contains(&feature) => {}
            Some(feature) => own.push(feature),
            None if name.contains(':') => {
                let (at, classes) = (table.column_place(name), classes.to_vec());
                return Err(DataError::NoSuchClass { at, classes });
            }
            None => shared.push(table.numbers(column)?),
        }
    }
    if own.is_empty() {
        return Err(DataError::NoArmColumns(table.header_place()));
    }
    let read = |feature: &str| -> Result<Vec<f64>, DataError> {
        let mut numbers = Vec::with_capacity(table.rows() * classes.len());
        for class in classes {
            let name = format!("{class}:{feature}");
            let Ok(column) = table.find(&name) else {
                let at = table.header_place();
                return Err(DataError::MissingArmColumn { at, column: name });
            };
            numbers.extend(table.numbers(column)?);
        }
        Ok(numbers)
    };
    let own = own.into_iter().map(read).collect::<Result<_, _>>()?;
    Ok(ArmVectors::per_arm(shared, own, table.rows(), classes.len()))
}

/// The part of a column's name after its class; with the longest class if classes have colons
/// themselves.
fn own_feature<'a>(name: &'a str, classes: &[String]) -> Option<&'a str> {
    let rest = |class: &String| name.strip_prefix(class.as_str())?.strip_prefix(':');
    classes.iter().filter_map(rest).min_by_key(|feature| feature.len())
}
