use incrowd_protocol::Layout;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use rand_distr::{Distribution, StandardNormal};

use super::{DataError, Place};

/// Up to this many numbers, projected features are kept in memory (160 MB).
const READY: usize = 20_000_000;
/// Entries that a projection may have.
const LARGEST_PROJECTION: usize = 100_000_000;

/// The features of every arm for every row of a data file, all of norm at most 1.
///
/// Columns are standardised (mean 0, variance 1; constant ones become 0), a bias of 1 comes first,
/// and everything is divided by the largest norm.
#[derive(Debug)]
pub(super) struct ArmVectors {
    rows: usize,
    arms: usize,
    width: usize,
    entries: Vec<f64>,
    kind: Kind,
    projection: Option<Projection>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `width` entries per row. An arm's features are zero but for these entries in the arm's own
    /// block.
    Blocks,
    /// `width` entries per row, which are every arm's features; the arm's slot tells them apart.
    Slots,
    /// `width` entries per row and arm, which are the arm's features. The last `own` of them are
    /// the arm's own; where there are `slots`, the others have a weight in each of them.
    PerArm { own: usize, slots: bool },
}

/// A linear map to fewer dimensions.
#[derive(Debug)]
struct Projection {
    dimension: usize,
    /// The image of one coordinate after the other.
    matrix: Vec<f64>,
    /// All projected features, if they are not too many.
    ready: Option<Vec<f64>>,
}

impl ArmVectors {
    /// Each arm sees the same columns and has its own block for them. All columns have `rows`
    /// numbers.
    pub(super) fn blocks(mut columns: Vec<Vec<f64>>, rows: usize, arms: usize) -> Self {
        columns.iter_mut().for_each(|column| standardise(column));
        let width = 1 + columns.len();
        let mut entries = Vec::with_capacity(rows * width);
        for row in 0..rows {
            entries.push(1.0);
            entries.extend(columns.iter().map(|column| column[row]));
        }
        shrink(&mut entries, width);
        Self { rows, arms, width, entries, kind: Kind::Blocks, projection: None }
    }

    /// The same with a slot for each arm.
    pub(super) fn slots(columns: Vec<Vec<f64>>, rows: usize, arms: usize) -> Self {
        Self { kind: Kind::Slots, ..Self::blocks(columns, rows, arms) }
    }

    /// The same with a slot for each arm, whose own features have one weight for all of them.
    pub(super) fn into_hybrid(self) -> Self {
        let kind = match self.kind {
            Kind::PerArm { own, .. } => Kind::PerArm { own, slots: true },
            kind => kind,
        };
        Self { kind, ..self }
    }

    /// How features are weighted.
    pub(super) fn layout(&self) -> Layout {
        let slots = self.arms as u32;
        match self.kind {
            _ if self.projection.is_some() => Layout::Shared,
            Kind::Slots => Layout::PerAction { slots },
            Kind::PerArm { own, slots: true } => Layout::Hybrid { slots, shared: own as u32 },
            Kind::Blocks | Kind::PerArm { .. } => Layout::Shared,
        }
    }

    /// Each arm has the shared columns and its own ones. An own feature has `rows` numbers of the
    /// first arm, then those of the second, and so on; it is standardised over all arms, so that
    /// differences between arms remain.
    pub(super) fn per_arm(
        mut shared: Vec<Vec<f64>>,
        mut own: Vec<Vec<f64>>,
        rows: usize,
        arms: usize,
    ) -> Self {
        shared.iter_mut().chain(&mut own).for_each(|feature| standardise(feature));
        let (width, kind) =
            (1 + shared.len() + own.len(), Kind::PerArm { own: own.len(), slots: false });
        let mut entries = Vec::with_capacity(rows * arms * width);
        for row in 0..rows {
            for arm in 0..arms {
                entries.push(1.0);
                entries.extend(shared.iter().map(|column| column[row]));
                entries.extend(own.iter().map(|feature| feature[arm * rows + row]));
            }
        }
        shrink(&mut entries, width);
        Self { rows, arms, width, entries, kind, projection: None }
    }

    /// Random projection to `dimension` entries, or none if that fits a model. `at` is the file,
    /// for errors.
    ///
    /// The matrix has independent normal entries of variance 1/dimension, drawn from `seed`, and is
    /// divided by the largest norm of an image.
    pub(super) fn project(
        mut self,
        dimension: Option<u32>,
        seed: u64,
        at: Place,
    ) -> Result<Self, DataError> {
        let before = self.dimension();
        let Some(dimension) = dimension else {
            return if before <= 1000 {
                Ok(self)
            } else {
                Err(DataError::Dimensions { at, found: before })
            };
        };
        let largest = before.min(1000);
        if !(2..=largest).contains(&(dimension as usize)) {
            return Err(DataError::Project { at, found: dimension, largest });
        }
        let dimension = dimension as usize;
        let found = before.saturating_mul(dimension);
        if found > LARGEST_PROJECTION {
            return Err(DataError::ProjectionSize { at, found, dimensions: before });
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // The people of a run with the same seed have stream 0.
        rng.set_stream(3);
        let scale = 1.0 / (dimension as f64).sqrt();
        let mut entry = || scale * Distribution::<f64>::sample(&StandardNormal, &mut rng);
        let matrix = (0..found).map(|_| entry()).collect();
        self.projection = Some(self.fit(Projection { dimension, matrix, ready: None }));
        Ok(self)
    }

    /// Divides by the largest norm, and prepares the images.
    fn fit(&self, mut projection: Projection) -> Projection {
        let images = self.rows.saturating_mul(self.arms);
        let keep = images.saturating_mul(projection.dimension) <= READY;
        let mut ready = Vec::new();
        let mut image = vec![0.0; projection.dimension];
        let mut largest: f64 = 0.0;
        for row in 0..self.rows {
            for arm in 0..self.arms {
                projection.apply(self.own(row, arm), &mut image);
                largest = largest.max(norm(&image));
                if keep {
                    ready.extend_from_slice(&image);
                }
            }
        }
        if largest > 0.0 {
            projection.matrix.iter_mut().chain(&mut ready).for_each(|entry| *entry /= largest);
        }
        projection.ready = keep.then_some(ready);
        projection
    }

    /// Number of arms.
    pub(super) fn arms(&self) -> usize {
        self.arms
    }

    /// Number of features.
    pub(super) fn dimension(&self) -> usize {
        match (&self.projection, self.kind) {
            (Some(projection), _) => projection.dimension,
            (None, Kind::Blocks) => self.width * self.arms,
            (None, Kind::Slots | Kind::PerArm { .. }) => self.width,
        }
    }

    /// The features of all arms for one row.
    pub(super) fn write(&self, row: usize, target: &mut Vec<f64>) {
        let dimension = self.dimension();
        let size = self.arms * dimension;
        let ready = self.projection.as_ref().and_then(|projection| projection.ready.as_ref());
        if let Some(ready) = ready {
            target.clear();
            target.extend_from_slice(&ready[row * size..(row + 1) * size]);
            return;
        }
        target.clear();
        target.resize(size, 0.0);
        for (arm, features) in target.chunks_exact_mut(dimension).enumerate() {
            let (offset, entries) = self.own(row, arm);
            match &self.projection {
                Some(projection) => projection.apply((offset, entries), features),
                None => features[offset..offset + entries.len()].copy_from_slice(entries),
            }
        }
    }

    /// Where an arm's entries begin, and those entries; all others are zero.
    fn own(&self, row: usize, arm: usize) -> (usize, &[f64]) {
        let (offset, index) = match self.kind {
            Kind::Blocks => (arm * self.width, row),
            Kind::Slots => (0, row),
            Kind::PerArm { .. } => (0, row * self.arms + arm),
        };
        (offset, &self.entries[index * self.width..(index + 1) * self.width])
    }
}

impl Projection {
    fn apply(&self, (offset, entries): (usize, &[f64]), image: &mut [f64]) {
        image.fill(0.0);
        let columns = self.matrix.chunks_exact(self.dimension).skip(offset);
        for (entry, column) in entries.iter().zip(columns) {
            image.iter_mut().zip(column).for_each(|(sum, factor)| *sum += entry * factor);
        }
    }
}

/// Mean 0, variance 1; all 0 if they are all the same.
fn standardise(values: &mut [f64]) {
    let largest = values.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
    if largest == 0.0 {
        return;
    }
    // Within [-1, 1] no square overflows.
    values.iter_mut().for_each(|value| *value /= largest);
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / count;
    let deviation = if variance > 0.0 { variance.sqrt() } else { f64::INFINITY };
    values.iter_mut().for_each(|value| *value = (*value - mean) / deviation);
}

/// Divides vectors of `width` entries by their largest norm.
fn shrink(entries: &mut [f64], width: usize) {
    let largest = entries.chunks_exact(width).map(norm).fold(0.0, f64::max);
    entries.iter_mut().for_each(|entry| *entry /= largest);
}

fn norm(vector: &[f64]) -> f64 {
    vector.iter().map(|entry| entry * entry).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn prepared_and_computed_projections_agree() {
        let at = Place { file: PathBuf::new(), line: None, column: None };
        let column = |factor: f64| (0..9).map(|row| (factor * f64::from(row)).sin()).collect();
        let vectors = [
            ArmVectors::blocks(vec![column(1.0), column(2.0)], 9, 3),
            ArmVectors::per_arm(vec![column(1.0)], vec![column(2.0), column(3.0)], 3, 3),
        ];
        for vectors in vectors {
            let mut vectors = vectors.project(Some(3), 1, at.clone()).unwrap();
            let all = |vectors: &ArmVectors| {
                let mut row = Vec::new();
                let mut all = Vec::new();
                for index in 0..vectors.rows {
                    vectors.write(index, &mut row);
                    all.extend_from_slice(&row);
                }
                all
            };
            let prepared = all(&vectors);
            assert!(vectors.projection.as_mut().unwrap().ready.take().is_some());
            let computed = all(&vectors);
            assert_eq!(prepared.len(), computed.len());
            for (left, right) in prepared.iter().zip(&computed) {
                assert!((left - right).abs() < 1e-14);
            }
            let largest = computed.chunks_exact(3).map(norm).fold(0.0, f64::max);
            assert!((largest - 1.0).abs() < 1e-12);
        }
    }
}
