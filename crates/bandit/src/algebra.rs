//! The little linear algebra a model needs, in a fixed order of operations (only +, -, *, / and
//! square roots), so that every machine gets the same bits. Symmetric and lower triangular matrices
//! are packed row by row.

use incrowd_protocol::triangle;

/// C with A = C C', lower triangular with a positive diagonal; none if A is not positive definite.
pub fn cholesky(matrix: &[f64], dimension: usize) -> Option<Vec<f64>> {
    let mut factor = matrix.to_vec();
    for i in 0..dimension {
        let (above, row) = factor.split_at_mut(triangle(i));
        for j in 0..i {
            let other = &above[triangle(j)..triangle(j + 1)];
            row[j] = (row[j] - dot(&row[..j], &other[..j])) / other[j];
        }
        let pivot = row[i] - dot(&row[..i], &row[..i]);
        if !(pivot > 0.0 && pivot.is_finite()) {
            return None;
        }
        row[i] = pivot.sqrt();
    }
    Some(factor)
}

/// The inverse of a lower triangular matrix.
pub(crate) fn invert_lower(factor: &[f64], dimension: usize) -> Vec<f64> {
    let mut inverse = vec![0.0; factor.len()];
    let mut sums = vec![0.0; dimension];
    for i in 0..dimension {
        let row = &factor[triangle(i)..triangle(i + 1)];
        // Row i of the inverse is -(row i of C without its diagonal) times the rows above, over the
        // diagonal.
        sums[..i].fill(0.0);
        for (k, &entry) in row[..i].iter().enumerate() {
            for (sum, value) in sums.iter_mut().zip(&inverse[triangle(k)..triangle(k + 1)]) {
                *sum += entry * value;
            }
        }
        for (j, sum) in sums[..i].iter().enumerate() {
            inverse[triangle(i) + j] = -sum / row[i];
        }
        inverse[triangle(i) + i] = 1.0 / row[i];
    }
    inverse
}

/// W'(W b): the solution x of A x = b, when W is the inverse of A's Cholesky factor.
pub(crate) fn solve(inverse: &[f64], right: &[f64]) -> Vec<f64> {
    let mut solution = vec![0.0; right.len()];
    for i in 0..right.len() {
        let row = &inverse[triangle(i)..triangle(i + 1)];
        let entry = dot(row, &right[..=i]);
        for (value, w) in solution.iter_mut().zip(row) {
            *value += w * entry;
        }
    }
    solution
}

/// A x for a symmetric A.
pub(crate) fn multiply(matrix: &[f64], vector: &[f64]) -> Vec<f64> {
    let entry = |i: usize, j: usize| matrix[triangle(i.max(j)) + i.min(j)];
    let row = |i: usize| (0..vector.len()).map(|j| entry(i, j) * vector[j]).sum();
    (0..vector.len()).map(row).collect()
}

/// Smallest eigenvalue of a symmetric matrix: Householder to tridiagonal form, then bisection with
/// Sturm counts.
pub(crate) fn smallest_eigenvalue(matrix: &[f64], dimension: usize) -> f64 {
    let (diagonal, beside) = tridiagonal(matrix, dimension);
    let mut low = f64::INFINITY;
    let mut high = f64::INFINITY;
    for i in 0..dimension {
        let left = if i > 0 { beside[i - 1].abs() } else { 0.0 };
        let right = beside.get(i).map_or(0.0, |entry| entry.abs());
        low = low.min(diagonal[i] - left - right);
        high = high.min(diagonal[i]);
    }
    // lmin is in [low, high]: Gershgorin, and no eigenvalue exceeds the smallest diagonal entry
    // from below.
    loop {
        let middle = low + (high - low) / 2.0;
        // Neighbouring floats, or not numbers at all.
        if !(low < middle && middle < high) {
            return low;
        }
        if has_eigenvalue_below(&diagonal, &beside, middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
}

/// Whether the tridiagonal matrix minus `shift` is not positive definite: a pivot of its LDL'
/// decomposition is negative.
fn has_eigenvalue_below(diagonal: &[f64], beside: &[f64], shift: f64) -> bool {
    let mut pivot = diagonal[0] - shift;
    for i in 1..diagonal.len() {
        if pivot <= 0.0 {
            return true;
        }
        pivot = (diagonal[i] - shift) - (beside[i - 1] * beside[i - 1]) / pivot;
    }
    pivot <= 0.0
}

fn tridiagonal(matrix: &[f64], dimension: usize) -> (Vec<f64>, Vec<f64>) {
    let d = dimension;
    let mut a = vec![0.0; d * d];
    for i in 0..d {
        for j in 0..=i {
            a[i * d + j] = matrix[triangle(i) + j];
            a[j * d + i] = a[i * d + j];
        }
    }
    let mut beside = vec![0.0; d.saturating_sub(1)];
    for k in 0..d.saturating_sub(1) {
        // Reflect the part of column k below the diagonal onto its first entry.
        let mut v: Vec<f64> = (k + 1..d).map(|i| a[i * d + k]).collect();
        let norm = dot(&v, &v).sqrt();
        beside[k] = if v[0] > 0.0 { -norm } else { norm };
        v[0] -= beside[k];
        let square = dot(&v, &v);
        if square > 0.0 && v.len() > 1 {
            reflect(&mut a, d, k + 1, &v, square);
        }
    }
    ((0..d).map(|i| a[i * d + i]).collect(), beside)
}

/// A <- H A H on the rows and columns from `start`, H = I - 2 v v'/|v|^2.
fn reflect(a: &mut [f64], d: usize, start: usize, v: &[f64], square: f64) {
    let row = |i: usize| (start + i) * d + start..(start + i + 1) * d;
    let mut w: Vec<f64> = (0..v.len()).map(|i| 2.0 * dot(&a[row(i)], v) / square).collect();
    let half = dot(v, &w) / square;
    for (entry, value) in w.iter_mut().zip(v) {
        *entry -= half * value;
    }
    for i in 0..v.len() {
        for (entry, (vj, wj)) in a[row(i)].iter_mut().zip(v.iter().zip(&w)) {
            *entry -= v[i] * wj + w[i] * vj;
        }
    }
}

/// Four running sums in a fixed order: the same bits everywhere, and fast.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a_chunks, a_rest) = a.as_chunks::<4>();
    let (b_chunks, b_rest) = b.as_chunks::<4>();
    let mut sums = [0.0; 4];
    for (x, y) in a_chunks.iter().zip(b_chunks) {
        for lane in 0..4 {
            sums[lane] += x[lane] * y[lane];
        }
    }
    let rest = a_rest.iter().zip(b_rest).fold(0.0, |sum, (x, y)| sum + x * y);
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(matrix: &[f64], i: usize, j: usize) -> f64 {
        matrix[triangle(i.max(j)) + i.min(j)]
    }

    /// M M' + shift I for a random M.
    fn symmetric() -> impl Strategy<Value = (usize, Vec<f64>)> {
        (1usize..9).prop_flat_map(|d| {
            (prop::collection::vec(-1.0..1.0, d * d), -0.5..0.5f64).prop_map(move |(m, shift)| {
                let mut packed = Vec::new();
                for i in 0..d {
                    for j in 0..=i {
                        let product: f64 = (0..d).map(|k| m[i * d + k] * m[j * d + k]).sum();
                        packed.push(product + if i == j { shift } else { 0.0 });
                    }
                }
                (d, packed)
            })
        })
    }

    proptest! {
        #[test]
        fn the_smallest_eigenvalue_is_where_cholesky_starts_to_fail((d, a) in symmetric()) {
            let smallest = smallest_eigenvalue(&a, d);
            let shifted = |by: f64| {
                let mut b = a.clone();
                (0..d).for_each(|i| b[triangle(i + 1) - 1] -= smallest + by);
                cholesky(&b, d).is_some()
            };
            prop_assert!(shifted(-1e-9), "below it the matrix is positive definite");
            prop_assert!(!shifted(1e-9), "above it, not");
        }

        #[test]
        fn the_inverse_factor_solves((d, mut a) in symmetric()) {
            (0..d).for_each(|i| a[triangle(i + 1) - 1] += 1.0);
            let inverse = invert_lower(&cholesky(&a, d).unwrap(), d);
            let right: Vec<f64> = (0..d).map(|i| i as f64 - 1.5).collect();
            let x = solve(&inverse, &right);
            for i in 0..d {
                let left: f64 = (0..d).map(|j| entry(&a, i, j) * x[j]).sum();
                prop_assert!((left - right[i]).abs() < 1e-9);
            }
        }
    }
}
