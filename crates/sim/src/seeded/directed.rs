//! Sums of random vectors that have a known law along one direction each.

use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// Vectors whose normal parts are drawn together.
const BLOCK: usize = 8;

/// Sums of independent vectors, each with a law of its own along a direction and standard normal
/// across it. What is summed are the first entries of the vectors; a direction is given by its
/// entries there, so it is a unit vector or shorter.
///
/// The part of B vectors across their directions, the columns of Z, is normal with covariance
/// B I - Z Z'. With M = Z'Z, R R' = B I - M (Cholesky), X = sqrt(B) I + R and g standard normal,
/// sqrt(B) g - Z X^-1 Z'g has it: its covariance is B I - sqrt(B) Z (A + A') Z' + Z A M A' Z', A =
/// X^-1, and sqrt(B) (A + A') - A M A' = I follows from (X - sqrt(B) I)(X - sqrt(B) I)' = B I - M.
/// So a vector costs a few multiplications per entry, and B of them one normal vector.
pub(super) struct DirectedSums {
    sums: Vec<f64>,
    /// Directions of the vectors whose normal part is not drawn yet, one after another.
    block: Vec<f64>,
    filled: usize,
    /// Vectors without a direction.
    undirected: f64,
    normal: Vec<f64>,
}

impl DirectedSums {
    /// For vectors of so many entries.
    pub fn new(entries: usize) -> Self {
        Self {
            sums: vec![0.0; entries],
            block: vec![0.0; BLOCK * entries],
            filled: 0,
            undirected: 0.0,
            normal: vec![0.0; entries],
        }
    }

    /// Adds a vector with the component `along` in its direction.
    pub fn add(&mut self, direction: &[f64], along: f64, rng: &mut ChaCha8Rng) {
        let entries = self.sums.len();
        let place = &mut self.block[self.filled * entries..][..entries];
        for ((place, sum), z) in place.iter_mut().zip(&mut self.sums).zip(direction) {
            *place = *z;
            *sum += along * z;
        }
        self.filled += 1;
        if self.filled == BLOCK {
            self.draw_block(rng);
        }
    }

    /// Adds vectors that are standard normal in every direction.
    pub fn add_undirected(&mut self, vectors: u32) {
        self.undirected += f64::from(vectors);
    }

    /// The sum of all that was added, and of normal variables with the variance `more` in each
    /// entry. Begins anew.
    pub fn take(&mut self, more: f64, rng: &mut ChaCha8Rng) -> Vec<f64> {
        self.draw_block(rng);
        let std = (self.undirected + more).sqrt();
        self.undirected = 0.0;
        let empty = vec![0.0; self.sums.len()];
        let mut sums = std::mem::replace(&mut self.sums, empty);
        for sum in &mut sums {
            let normal: f64 = StandardNormal.sample(rng);
            *sum += std * normal;
        }
        sums
    }

    /// Draws what the vectors of the block have across their directions.
    fn draw_block(&mut self, rng: &mut ChaCha8Rng) {
        let vectors = self.filled;
        if vectors == 0 {
            return;
        }
        self.filled = 0;
        self.normal.fill_with(|| StandardNormal.sample(rng));
        self.spread(vectors);
    }

    /// Adds sqrt(B) g - Z X^-1 Z'g for the first B vectors of the block, g = `normal`.
    fn spread(&mut self, vectors: usize) {
        let (entries, root) = (self.sums.len(), (vectors as f64).sqrt());
        let direction = |i: usize| &self.block[i * entries..][..entries];
        // Row by row: R, and h with X h = Z'g.
        let (mut factor, mut share) = ([[0.0; BLOCK]; BLOCK], [0.0; BLOCK]);
        for i in 0..vectors {
            for j in 0..=i {
                let own = if i == j { vectors as f64 } else { 0.0 };
                let known = dot(&factor[i][..j], &factor[j]);
                let left = own - dot(direction(i), direction(j)) - known;
                factor[i][j] = if i == j {
                    // Zero, or a little below, where all directions are one unit vector.
                    left.max(0.0).sqrt()
                } else {
                    left / factor[j][j]
                };
            }
            let known = dot(&factor[i][..i], &share);
            share[i] = (dot(direction(i), &self.normal) - known) / (root + factor[i][i]);
        }
        for (sum, normal) in self.sums.iter_mut().zip(&self.normal) {
            *sum += root * normal;
        }
        for (direction, share) in self.block.chunks_exact(entries).zip(&share[..vectors]) {
            self.sums.iter_mut().zip(direction).for_each(|(sum, z)| *sum -= share * z);
        }
    }
}

/// The inner product of as many entries as both have.
fn dot(left: &[f64], right: &[f64]) -> f64 {
    let length = left.len().min(right.len());
    let (left, left_rest) = left[..length].as_chunks::<4>();
    let (right, right_rest) = right[..length].as_chunks::<4>();
    let mut lanes = [0.0; 4];
    for (left, right) in left.iter().zip(right) {
        for lane in 0..4 {
            lanes[lane] += left[lane] * right[lane];
        }
    }
    let rest: f64 = left_rest.iter().zip(right_rest).map(|(left, right)| left * right).sum();
    (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]) + rest
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    /// The sum is a linear map of g; its covariance is the map times its transpose. The map is read
    /// off with unit vectors in place of g.
    #[test]
    fn a_block_has_the_covariance_of_its_vectors() {
        let entries = 5;
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let unit = |mut z: Vec<f64>, length: f64| {
            let norm = z.iter().map(|z| z * z).sum::<f64>().sqrt() / length;
            z.iter_mut().for_each(|z| *z /= norm);
            z
        };
        let mut random =
            |length| unit((0..entries).map(|_| StandardNormal.sample(&mut rng)).collect(), length);
        let one = random(1.0);
        let cases = [
            vec![random(1.0)],
            vec![random(0.3), random(1.0), random(0.9)],
            vec![one.clone(); BLOCK],
            vec![vec![0.0; entries]; 2],
            (0..BLOCK).map(|i| random(i as f64 / 8.0)).collect(),
        ];
        for directions in cases {
            let mut sums = DirectedSums::new(entries);
            // Column by column: the linear map from g to the sum.
            let columns: Vec<Vec<f64>> = (0..entries)
                .map(|unit| {
                    for (place, z) in sums.block.chunks_exact_mut(entries).zip(&directions) {
                        place.copy_from_slice(z);
                    }
                    sums.normal.fill(0.0);
                    sums.normal[unit] = 1.0;
                    sums.sums.fill(0.0);
                    sums.spread(directions.len());
                    sums.sums.clone()
                })
                .collect();
            for i in 0..entries {
                for j in 0..entries {
                    let found: f64 = columns.iter().map(|column| column[i] * column[j]).sum();
                    let same = if i == j { directions.len() as f64 } else { 0.0 };
                    let wanted = same - directions.iter().map(|z| z[i] * z[j]).sum::<f64>();
                    assert!((found - wanted).abs() < 1e-6, "{i} {j}: {found} {wanted}");
                }
            }
        }
    }
}
