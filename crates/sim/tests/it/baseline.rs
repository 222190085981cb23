//! The baselines' certificates: against independent values, against exact divergences, and against
//! what they must never be below.

use incrowd_privacy::PrivacyError;
use incrowd_protocol::{BatchSize, Dimension, UnitError};
use incrowd_sim::baseline::*;
use proptest::prelude::*;

fn central(baseline: &Baseline) -> f64 {
    certify(baseline).unwrap().epsilon_central().unwrap()
}

fn local(noise_std: f64, delta: f64) -> Baseline {
    Baseline::LocalGaussian { dimension: 1, noise_std, delta }
}

fn shuffled(dimension: u32, batch_size: u32, noise_std: f64, delta: f64) -> Baseline {
    Baseline::ShuffledGaussian { dimension, batch_size, noise_std, delta }
}

fn binomial(dimension: u32, batch_size: u32, levels: u32, coins: u32, delta: f64) -> Baseline {
    let batches = vec![BinomialBatch { batch_size, levels, coins }];
    Baseline::ShuffledBinomial { dimension, batches, delta }
}

fn tree(leaves: u32, noise_std: f64, delta: f64) -> Baseline {
    Baseline::GaussianTree { dimension: 5, leaf_size: 10, leaves, noise_std, delta }
}

/// Rounded up, and not by more than `slack`.
fn assert_above(found: f64, wanted: f64, slack: f64, case: &str) {
    assert!(found >= wanted && found <= wanted * (1.0 + slack), "{case}: {found} for {wanted}");
}

/// From mpmath with 40 digits, by bisection of Balle and Wang's formula; d = 1, where the diameter
/// is 2.
#[test]
fn the_gaussian_is_exact() {
    for (ratio, delta, wanted) in [
        (3.730_632, 1e-5, 0.999_999_892_505_472_2),
        (10.0, 1e-6, 0.396_857_377_644_083_6),
        (0.5, 1e-9, 13.534_772_219_165_54),
        (2.0, 1e-30, 5.718_296_581_808_107),
        (0.05, 1e-250, 875.406_244_552_855_3),
        (1000.0, 1e-6, 0.002_718_219_088_813_995),
    ] {
        let found = central(&local(2.0 * ratio, delta));
        assert_above(found, wanted, 1e-8, &format!("{ratio} {delta:e}"));
    }
    // Balle, Wang 2018: sigma/Delta at (1, 1e-5).
    let found = local_gaussian(1, 1.0, 1e-5).unwrap().noise_std() / 2.0;
    assert_above(found, 3.730_631_634_815_94, 1e-5, "calibrated");
}

/// Every node that a prefix uses, and how many of them contain each leaf.
#[test]
fn tree_levels_by_brute_force() {
    assert_eq!((tree_levels(0), tree_levels(1)), (0, 0));
    for leaves in 2..=200u32 {
        let mut nodes = std::collections::BTreeSet::new();
        for prefix in 1..leaves {
            let mut start = 0;
            for digit in (0..32).rev().filter(|digit| prefix >> digit & 1 == 1) {
                nodes.insert((start, start + (1 << digit)));
                start += 1 << digit;
            }
            assert_eq!(start, prefix);
        }
        let holding = |leaf| nodes.iter().filter(|node| (node.0..node.1).contains(&leaf)).count();
        let most = (0..leaves).map(holding).max().unwrap();
        assert_eq!(tree_levels(leaves) as usize, most, "{leaves}");
    }
}

/// L levels are one release with sqrt(L) less noise.
#[test]
fn a_tree_is_its_levels() {
    for (leaves, levels) in [(2, 1.0), (3, 2.0), (1000, 10.0), (1024, 10.0), (1025, 11.0)] {
        let one = Baseline::LocalGaussian {
            dimension: 5,
            noise_std: 20.0 / f64::sqrt(levels),
            delta: 1e-6,
        };
        let (found, wanted) = (central(&tree(leaves, 20.0, 1e-6)), central(&one));
        assert!((found / wanted - 1.0).abs() < 1e-9, "{leaves}: {found} {wanted}");
    }
    assert_eq!(certify(&tree(1000, 20.0, 1e-6)).unwrap().epsilon_local(), None);
}

fn factorized(releases: u32, noise_std: f64, delta: f64) -> Baseline {
    Baseline::GaussianFactorized { dimension: 5, releases, noise_std, delta }
}

/// f_0 f_t + ... + f_t f_0 = 1: the square of the factor adds up.
#[test]
fn the_factor_is_a_square_root() {
    let f = square_root_coefficients(500);
    for t in 0..f.len() {
        let product: f64 = (0..=t).map(|k| f[k] * f[t - k]).sum();
        assert!((product - 1.0).abs() < 1e-12, "{t}: {product}");
    }
    assert_eq!(prefix_variances(4), [1.0, 1.25, 1.390_625, 1.488_281_25]);
}

/// Squared length of `shift` in the metric of a covariance matrix: Gaussian elimination.
fn distance(mut covariance: Vec<Vec<f64>>, mut shift: Vec<f64>) -> f64 {
    let mut squared = 0.0;
    for i in 0..shift.len() {
        squared += shift[i] * shift[i] / covariance[i][i];
        for j in i + 1..shift.len() {
            let factor = covariance[j][i] / covariance[i][i];
            shift[j] -= factor * shift[i];
            for k in i..shift.len() {
                covariance[j][k] -= factor * covariance[i][k];
            }
        }
    }
    squared
}

/// The certificate against the law of the prefixes itself. Someone in leaf s moves the prefixes s,
/// ..., n by up to sqrt(4.5), and these are Gaussian with the covariance that the simulation is
/// tested for: the largest distance over s must be the certified one.
#[test]
fn a_factorization_is_the_distance_of_its_prefixes() {
    let noise = 20.0;
    for releases in [1, 2, 5, 12] {
        let f = square_root_coefficients(releases);
        let n = releases as usize;
        let covariance = |t: usize, s: usize| -> f64 {
            let (low, high) = (t.min(s), t.max(s));
            (0..=low).map(|k| noise * noise * f[k] * f[k + high - low]).sum()
        };
        let matrix: Vec<Vec<f64>> =
            (0..n).map(|t| (0..n).map(|s| covariance(t, s)).collect()).collect();
        let moved = |leaf: usize| -> Vec<f64> {
            (0..n).map(|t| if t >= leaf { 4.5f64.sqrt() } else { 0.0 }).collect()
        };
        let squared = (0..n).map(|leaf| distance(matrix.clone(), moved(leaf)));
        let largest = squared.fold(0.0, f64::max).sqrt();
        let same = Baseline::LocalGaussian {
            dimension: 5,
            noise_std: 4.5f64.sqrt() / largest,
            delta: 1e-6,
        };
        let found = central(&factorized(releases, noise, 1e-6));
        assert_above(found, central(&same) * (1.0 - 1e-9), 1e-7, &format!("{releases}"));
    }
    assert_eq!(certify(&factorized(9, noise, 1e-6)).unwrap().epsilon_local(), None);
}

/// Mean and largest standard deviation of 951 prefixes at the same guarantee, in units of the noise
/// that one release needs: values of an independent script.
#[test]
fn a_factorization_has_less_than_half_of_a_trees_noise() {
    let (epsilon, delta) = (1.0, 1e-6);
    let one = gaussian_batches(5, epsilon, delta).unwrap().noise_std();
    let of_prefixes = |noise: f64, shares: &[f64]| {
        let stds = || shares.iter().map(|share| share.sqrt() * noise / one);
        (stds().sum::<f64>() / shares.len() as f64, stds().fold(0.0, f64::max))
    };
    let noise = gaussian_factorized(5, 951, epsilon, delta).unwrap().noise_std();
    let (mean, most) = of_prefixes(noise, &prefix_variances(951));
    assert!((mean - 3.0812).abs() < 1e-3 && (most - 3.2490).abs() < 1e-3, "{mean} {most}");
    let noise = gaussian_tree(5, 1, 952, epsilon, delta).unwrap().noise_std();
    let digits: Vec<f64> = (1..952u32).map(|t| f64::from(t.count_ones())).collect();
    let (mean, most) = of_prefixes(noise, &digits);
    assert!((mean - 6.8724).abs() < 1e-3 && (most - 9.4868).abs() < 1e-3, "{mean} {most}");
}

/// The shuffler releases the sum of a batch: sqrt(l) times the noise of one report, whatever the
/// others' data are. What one person sends has the noise of one report.
#[test]
fn a_shuffled_gaussian_is_the_noise_of_its_sum() {
    for (noise, delta) in [(2.0, 1e-4), (5.0, 1e-6), (20.0, 1e-8)] {
        let of = |noise_std| central(&Baseline::LocalGaussian { dimension: 5, noise_std, delta });
        for batch in [1, 2, 10, 100, 10_000] {
            let certificate = certify(&shuffled(5, batch, noise, delta)).unwrap();
            assert_eq!(certificate.epsilon_local(), Some(of(noise)));
            let sum = of(noise * f64::from(batch).sqrt());
            let found = certificate.epsilon_central().unwrap();
            assert!((found - sum).abs() <= 1e-9 * sum, "{batch}: {found} {sum}");
            assert!(certificate.adversary().starts_with("whoever sees the sums of a batch;"));
        }
    }
    // As much noise as a trusted server adds to a batch, and no more.
    let trusted = gaussian_batches(5, 1.0, 1e-6).unwrap().noise_std();
    for batch in [1, 100, 50_000] {
        let found = shuffled_gaussian(5, batch, 1.0, 1e-6).unwrap().noise_std();
        assert!((found / trusted - 1.0).abs() < 1e-5, "{batch}: {found} {trusted}");
    }
}

/// All shifts, all points and a fine grid of orders, by an independent script.
#[test]
fn the_binomial_is_the_proved_bound() {
    for (d, batch, levels, coins, delta, wanted) in [
        (1, 3, 2, 60, 1e-3, 1.502_997_747),
        (1, 10, 4, 40, 1e-3, 1.701_946_572),
        (2, 5, 6, 200, 1e-4, 1.962_887_049),
        (5, 20, 18, 60, 1e-6, 7.584_487_898),
    ] {
        let found = central(&binomial(d, batch, levels, coins, delta));
        assert_above(found * (1.0 + 1e-6), wanted, 0.01, &format!("{d} {batch} {levels} {coins}"));
    }
}

/// Laws of levels (v+1)/2 rounded at random, plus Bin(n, 1/4): the others' values are known, so
/// they do not matter.
fn law(v: f64, levels: u32, n: u32) -> Vec<f64> {
    let mut coins = vec![1.0];
    for _ in 0..n {
        let mut next = vec![0.0; coins.len() + 1];
        for (k, p) in coins.iter().enumerate() {
            next[k] += 0.75 * p;
            next[k + 1] += 0.25 * p;
        }
        coins = next;
    }
    let exact = f64::from(levels) * f64::midpoint(v, 1.0);
    let (whole, part) = (exact.floor() as usize, exact.fract());
    let mut law = vec![0.0; (n + levels + 2) as usize];
    for (k, p) in coins.iter().enumerate() {
        law[k + whole] += (1.0 - part) * p;
        law[k + whole + 1] += part * p;
    }
    law
}

/// Exact hockey-stick divergence of two coordinates.
fn divergence(p: &[Vec<f64>; 2], q: &[Vec<f64>; 2], epsilon: f64) -> f64 {
    let mut sum = 0.0;
    for i in 0..p[0].len() {
        for j in 0..p[1].len() {
            sum += (p[0][i] * p[1][j] - epsilon.exp() * q[0][i] * q[1][j]).max(0.0);
        }
    }
    sum
}

#[test]
fn the_binomial_is_never_below_the_exact_divergence() {
    let data =
        [(1.0, 1.0), (-1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.7, 1.0), (-0.4, 1.0), (-0.55, 0.3)];
    let mut worst = f64::INFINITY;
    for (batch, levels, coins, delta) in [
        (2, 1, 30, 1e-2),
        (3, 2, 60, 1e-3),
        (10, 4, 40, 1e-3),
        (5, 3, 60, 1e-4),
        (3, 8, 27, 1e-2),
        (1, 4, 200, 1e-3),
    ] {
        let n = batch * coins;
        let Some(epsilon) =
            certify(&binomial(1, batch, levels, coins, delta)).unwrap().epsilon_central()
        else {
            continue;
        };
        let laws = data.map(|(u, r): (f64, f64)| [law(u * r, levels, n), law(u * u, levels, n)]);
        let mut largest = 0f64;
        for p in &laws {
            for q in &laws {
                let at = divergence(p, q, epsilon);
                assert!(at <= delta, "{batch} {levels} {coins}: {at} above {delta} at {epsilon}");
                // The exact epsilon of this pair.
                let (mut low, mut high) = (0.0, epsilon);
                for _ in 0..30 {
                    let middle = f64::midpoint(low, high);
                    if divergence(p, q, middle) <= delta { high = middle } else { low = middle }
                }
                largest = largest.max(high);
            }
        }
        println!("{batch} {levels} {coins} {delta:e}: certified {epsilon:.4}, exact {largest:.4}");
        worst = worst.min(epsilon / largest);
    }
    assert!((1.0..1.6).contains(&worst), "{worst}");
}

/// With few coins some shifts are impossible to hide; a certificate says nothing rather than zero.
#[test]
fn too_few_coins_prove_nothing() {
    for (batch, levels, coins) in [(1, 8, 3), (2, 10, 10), (3, 8, 1), (1, 1, 1)] {
        let certificate = certify(&binomial(1, batch, levels, coins, 1e-6)).unwrap();
        assert_eq!(certificate.epsilon_central(), None, "{batch} {levels} {coins}");
    }
    for coins in 1..200 {
        if let Some(epsilon) = certify(&binomial(1, 3, 8, coins, 1e-3)).unwrap().epsilon_central() {
            assert!(epsilon > 0.5, "{coins}: {epsilon}");
        }
    }
}

/// A person is in one batch: the certificate is that of the worst one, in any order, and proves
/// nothing if one of them does not.
#[test]
fn growing_batches_are_certified_one_by_one() {
    let (small, large) = (binomial(3, 50, 30, 400, 1e-6), binomial(3, 500, 90, 200, 1e-6));
    let together = |first: &Baseline, second: &Baseline| {
        let batches = |baseline: &Baseline| match baseline {
            Baseline::ShuffledBinomial { batches, .. } => batches.clone(),
            other => panic!("{other:?}"),
        };
        let batches = [batches(first), batches(second)].concat();
        certify(&Baseline::ShuffledBinomial { dimension: 3, batches, delta: 1e-6 }).unwrap()
    };
    let worst = central(&small).max(central(&large));
    assert!((central(&small) - central(&large)).abs() > 0.01);
    for certificate in [together(&small, &large), together(&large, &small)] {
        assert_eq!(certificate.epsilon_central(), Some(worst));
        let local = |baseline| certify(baseline).unwrap().epsilon_local();
        let expected = local(&small).zip(local(&large)).map(|(a, b): (f64, f64)| a.max(b));
        assert_eq!(certificate.epsilon_local(), expected);
    }
    let nothing = binomial(3, 2, 40, 1, 1e-6);
    assert_eq!(together(&small, &nothing).epsilon_central(), None);
    assert_eq!(together(&nothing, &small).epsilon_central(), None);
    let none = Baseline::ShuffledBinomial { dimension: 3, batches: Vec::new(), delta: 1e-6 };
    assert_eq!(certify(&none), Err(BaselineError::NoBatches));
    assert_eq!(shuffled_binomial(3, &[], 1.0, 1e-6), Err(BaselineError::NoBatches));

    let sizes = [100, 200, 400, 800, 800];
    let growing = shuffled_binomial(3, &sizes, 1.0, 1e-6).unwrap();
    let found = central(&growing);
    assert!(found <= 1.0 && found > 0.98, "{found}");
    let Baseline::ShuffledBinomial { batches, .. } = &growing else { panic!("{growing:?}") };
    assert!(batches.iter().map(|batch| batch.batch_size).eq(sizes));
    // At the same epsilon the noise of a sum hardly depends on the size of its batch.
    let stds: Vec<f64> = batches.iter().map(|batch| batch.variance().sqrt()).collect();
    let least = stds.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(stds.iter().all(|std| std / least < 1.1), "{stds:?}");
    assert!((growing.noise_std() / stds[0] - 1.0).abs() < 0.1);
}

#[test]
fn calibrated_noise_is_enough_and_not_much_more() {
    for (epsilon, delta) in [(0.1, 1e-6), (1.0, 1e-6), (1.0, 1e-9), (3.0, 1e-5)] {
        let all = [
            gaussian_tree(5, 10, 1000, epsilon, delta),
            gaussian_factorized(5, 1000, epsilon, delta),
            local_gaussian(5, epsilon, delta),
            shuffled_gaussian(5, 500, epsilon, delta),
            shuffled_binomial(5, &[100], epsilon, delta),
            shuffled_binomial(1, &[20], epsilon, delta),
        ];
        for baseline in all {
            let baseline = baseline.unwrap();
            let found = central(&baseline);
            assert!(found <= epsilon && found >= 0.98 * epsilon, "{found} {epsilon} {baseline:?}");
        }
    }
    let one = local_gaussian(5, 1.0, 1e-6).unwrap();
    // Everyone's coins together are nearly a Gaussian of the trusted server's size.
    let together = shuffled_binomial(5, &[2000], 1.0, 1e-6).unwrap().noise_std();
    assert!(together > one.noise_std() && together < 1.2 * one.noise_std(), "{together}");
}

#[test]
fn printed_noise() {
    let tree = gaussian_tree_as_printed(5, 1, 1000, 1.0, 1e-6).unwrap();
    // 8 sqrt(11) ln(4e6)
    assert!((tree.noise_std() - 403.349_464).abs() < 1e-5, "{}", tree.noise_std());
    assert!(central(&tree) < 0.06);
    let Baseline::ShuffledGaussian { noise_std, .. } =
        shuffled_gaussian_as_printed(5, 500, 1.0, 1e-6).unwrap()
    else {
        panic!()
    };
    // 4 sqrt(2 ln(1.25e9) ln(2e6)/500)
    assert!((noise_std - 4.410_201).abs() < 1e-5, "{noise_std}");
    let printed = shuffled_binomial_as_printed(5, 500, 1.0, 1e-6).unwrap();
    // g = ceil(2 sqrt(500)) = 45, 24e4 45^2 ln(104e6)^2/500 = 331226458.4
    assert_eq!(printed, binomial(5, 500, 90, 331_226_459, 1e-6));
    assert!(central(&printed) < 0.01);
    assert!(matches!(
        shuffled_binomial_as_printed(5, 500, 0.1, 1e-6),
        Err(BaselineError::Coins(_))
    ));
}

#[test]
fn a_certificate_is_about_one_mechanism() {
    let all = [
        tree(10, 20.0, 1e-6),
        tree(11, 20.0, 1e-6),
        tree(10, 20.000_001, 1e-6),
        tree(10, 20.0, 1e-7),
        Baseline::GaussianTree {
            dimension: 5,
            leaf_size: 11,
            leaves: 10,
            noise_std: 20.0,
            delta: 1e-6,
        },
        factorized(10, 20.0, 1e-6),
        factorized(11, 20.0, 1e-6),
        local(20.0, 1e-6),
        shuffled(1, 10, 20.0, 1e-6),
        shuffled(1, 11, 20.0, 1e-6),
        binomial(1, 10, 4, 100, 1e-3),
        binomial(1, 10, 4, 101, 1e-3),
        binomial(1, 10, 5, 100, 1e-3),
        Baseline::ShuffledBinomial {
            dimension: 1,
            batches: vec![BinomialBatch { batch_size: 10, levels: 4, coins: 100 }; 2],
            delta: 1e-3,
        },
    ];
    let hashes: std::collections::BTreeSet<String> =
        all.iter().map(|baseline| baseline.hash().to_string()).collect();
    assert_eq!(hashes.len(), all.len());
    for baseline in &all {
        let certificate = certify(baseline).unwrap();
        assert_eq!(certificate.mechanism(), baseline.hash());
        assert_eq!(certificate.delta().to_bits(), baseline.delta().to_bits());
        assert!(certificate.adversary().contains("trusted"));
        let json = serde_json::to_value(baseline).unwrap();
        assert_eq!(json["dimension"], baseline.dimension());
    }
    // SHA-256 of the bytes that the documentation names, by an independent script.
    assert_eq!(
        local(20.0, 1e-6).hash().to_string(),
        "5d5f9742160363edab7210a89dee9144acff1edfc5fa78094c08a04d9601b7d2"
    );
    assert_eq!(serde_json::to_value(local(20.0, 1e-6)).unwrap()["kind"], "local-gaussian");
}

#[test]
fn bad_numbers_are_refused() {
    for noise in [0.0, -1.0, 1e-4, 1e13, f64::NAN, f64::INFINITY] {
        assert!(matches!(certify(&local(noise, 1e-6)), Err(BaselineError::NoiseStd(_))), "{noise}");
        assert!(matches!(certify(&tree(5, noise, 1e-6)), Err(BaselineError::NoiseStd(_))));
        assert!(matches!(certify(&shuffled(5, 5, noise, 1e-6)), Err(BaselineError::NoiseStd(_))));
    }
    for delta in [0.0, 1.0, -1.0, f64::NAN] {
        for baseline in [
            local(1.0, delta),
            tree(5, 1.0, delta),
            shuffled(5, 5, 1.0, delta),
            binomial(1, 5, 4, 50, delta),
        ] {
            assert!(matches!(
                certify(&baseline),
                Err(BaselineError::Unit(UnitError { name: "delta", .. }))
            ));
        }
        assert!(matches!(
            local_gaussian(5, 1.0, delta),
            Err(BaselineError::Unit(UnitError { name: "delta", .. }))
        ));
        assert!(matches!(
            shuffled_binomial(5, &[10], 1.0, delta),
            Err(BaselineError::Unit(UnitError { name: "delta", .. }))
        ));
    }
    for epsilon in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        for refused in [
            gaussian_tree(5, 1, 10, epsilon, 1e-6),
            gaussian_tree_as_printed(5, 1, 10, epsilon, 1e-6),
            gaussian_factorized(5, 10, epsilon, 1e-6),
            local_gaussian(5, epsilon, 1e-6),
            shuffled_gaussian(5, 10, epsilon, 1e-6),
            shuffled_gaussian_as_printed(5, 10, epsilon, 1e-6),
            shuffled_binomial(5, &[10], epsilon, 1e-6),
            shuffled_binomial_as_printed(5, 10, epsilon, 1e-6),
        ] {
            assert!(
                matches!(refused, Err(BaselineError::Privacy(PrivacyError::EpsilonCentral(_)))),
                "{refused:?}"
            );
        }
    }
    assert_eq!(certify(&tree(1, 1.0, 1e-6)), Err(BaselineError::Leaves(1)));
    for releases in [0, MOST_RELEASES + 1] {
        let refused = Err(BaselineError::Releases(releases));
        assert_eq!(certify(&factorized(releases, 1.0, 1e-6)).map(|_| ()), refused);
        assert_eq!(gaussian_factorized(5, releases, 1.0, 1e-6).map(|_| ()), refused);
    }
    assert!(central(&factorized(MOST_RELEASES, 1.0, 1e-6)).is_finite());
    assert_eq!(gaussian_tree(5, 0, 10, 1.0, 1e-6), Err(BaselineError::LeafSize(0)));
    assert_eq!(gaussian_tree(0, 1, 10, 1.0, 1e-6), Err(Dimension::new(0).unwrap_err().into()));
    assert_eq!(certify(&shuffled(5, 0, 1.0, 1e-6)), Err(BatchSize::new(0).unwrap_err().into()));
    assert_eq!(shuffled_gaussian(5, 0, 1.0, 1e-6), Err(BatchSize::new(0).unwrap_err().into()));
    assert_eq!(shuffled_binomial(5, &[0], 1.0, 1e-6), Err(BatchSize::new(0).unwrap_err().into()));
    assert_eq!(certify(&binomial(5, 5, 0, 5, 1e-6)), Err(BaselineError::Levels(0)));
    assert_eq!(certify(&binomial(5, 5, 100_001, 5, 1e-6)), Err(BaselineError::Levels(100_001)));
    assert_eq!(certify(&binomial(5, 5, 4, 0, 1e-6)), Err(BaselineError::Coins(0.0)));
    assert!(matches!(
        shuffled_binomial(5, &[10_000], 1e-3, 1e-6),
        Err(BaselineError::EpsilonCentralTooSmall { .. })
    ));
    assert!(matches!(shuffled_binomial(5, &[u32::MAX], 1.0, 1e-6), Err(BaselineError::Levels(_))));
    // Extremes that are allowed.
    assert!(central(&local(1e-3, 1e-300)).is_finite());
    assert!(central(&local(1e12, 0.5)) >= 0.0);
    assert!(central(&shuffled(1000, u32::MAX, 1e-3, 1e-6)).is_finite());
    assert!(certify(&binomial(1, 1, 1, u32::MAX, 1e-6)).unwrap().epsilon_central().unwrap() < 1e-2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn monotone(noise in 0.5..50.0f64, exponent in 3.0..12.0f64, batch in 2u32..3000, leaves in 2u32..100_000) {
        let delta = 10f64.powf(-exponent);
        let more = |small: f64, large: f64| small <= large * (1.0 + 1e-3);
        let of_tree = |leaves, noise, delta| central(&tree(leaves, noise, delta));
        prop_assert!(of_tree(leaves, noise * 1.1, delta) < of_tree(leaves, noise, delta));
        prop_assert!(of_tree(2 * leaves, noise, delta) > of_tree(leaves, noise, delta));
        prop_assert!(of_tree(leaves, noise, delta / 2.0) > of_tree(leaves, noise, delta));
        let of_batch = |batch, noise, delta| central(&shuffled(5, batch, noise, delta));
        let here = of_batch(batch, noise, delta);
        prop_assert!(more(of_batch(batch, noise * 1.1, delta), here));
        prop_assert!(more(of_batch(2 * batch, noise, delta), here));
        prop_assert!(more(here, of_batch(batch, noise, delta / 2.0)));
    }

    #[test]
    fn more_coins_are_more_private(d in 1u32..6, batch in 2u32..40, levels in 2u32..30, coins in 50u32..1000) {
        let of = |batch, levels, coins| {
            let certificate = certify(&binomial(d, batch, levels, coins, 1e-5)).unwrap();
            certificate.epsilon_central().unwrap_or(f64::INFINITY)
        };
        let here = of(batch, levels, coins);
        prop_assert!(of(batch, levels, coins + coins / 4) <= here * 1.001);
        prop_assert!(of(batch + batch / 2, levels, coins) <= here * 1.001);
        prop_assert!(of(batch, levels + levels / 2, coins) >= here * 0.999);
    }
}

/// The largest ratio of the densities of what two people send, integrated over cells: the mass of
/// cell (y, x) of the plane of z and z', under each of them.
#[test]
fn privunit_is_certified_for_the_largest_ratio_of_its_densities() {
    for (outside, above) in [(0.2, 0.15), (0.45, 0.5), (0.01, 0.001), (0.5, 0.02)] {
        let law = PrivUnit::new(outside, above).unwrap();
        let t = law.threshold();
        let density = |y: f64| {
            let side = if y >= t { (1.0 - outside) / above } else { outside / (1.0 - above) };
            side * (-y * y / 2.0).exp() / std::f64::consts::TAU.sqrt()
        };
        // z = (1, 0) and z' = (c, s): g = (a, b) has y = a and y' = c a + s b.
        let mut worst = 0.0f64;
        let (mut total, mut other) = (0.0, 0.0);
        let normal = |x: f64| (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt();
        for angle in [0.5f64, 1.6957, 3.1] {
            let (s, c) = angle.sin_cos();
            (total, other) = (0.0, 0.0);
            for (i, k) in (-160..160).flat_map(|i| (-160..160).map(move |k| (i, k))) {
                let (a, b) = ((f64::from(i) + 0.5) / 20.0, (f64::from(k) + 0.5) / 20.0);
                let first = density(a) * normal(b);
                let second = density(c * a + s * b) * normal(c * b - s * a);
                total += first / 400.0;
                other += second / 400.0;
                worst = worst.max((first / second).ln());
            }
        }
        assert!((total - 1.0).abs() < 0.05 && (other - 1.0).abs() < 0.05, "{total} {other}");
        let baseline = Baseline::LocalPrivUnit { dimension: 3, outside, above, moment_weight: 128 };
        let certificate = certify(&baseline).unwrap();
        assert_eq!(certificate.epsilon_local(), certificate.epsilon_central());
        assert_above(certificate.epsilon_local().unwrap(), worst, 1e-6, "privunit");
        assert_eq!(certificate.delta().to_bits(), 0f64.to_bits());
        // A tenth less on the far side is not what is certified.
        let less = PrivUnit::new(0.9 * outside, above).unwrap();
        assert!(less.epsilon_upper() > worst + 0.05);
    }
}

/// From a script of its own (Python's math, a grid over t and a ternary search): the largest m over
/// t of phi(t)(p/(1-q) - (1-p)/q), q = Phi(t).
const PRIVUNIT_GAINS: [(f64, f64); 6] = [
    (0.1, 0.039_892_729_9),
    (1.0, 0.397_463_010_5),
    (2.0, 0.786_480_255_0),
    (4.0, 1.515_637_659_2),
    (8.0, 2.742_944_790_6),
    (20.0, 5.289_202_384_6),
];

/// The split is the best one, and what is drawn has its mean.
#[test]
fn privunit_has_the_largest_gain_at_its_epsilon() {
    for (epsilon, gain) in PRIVUNIT_GAINS {
        let Baseline::LocalPrivUnit { outside, above, .. } = local_privunit(5, epsilon).unwrap()
        else {
            panic!()
        };
        let law = PrivUnit::new(outside, above).unwrap();
        assert!((law.gain() / gain - 1.0).abs() < 1e-6, "{epsilon}: {}", law.gain());
        let found = law.epsilon_upper();
        assert!(found <= epsilon && found > epsilon * (1.0 - 1e-6), "{found}");
        let (mean, n) = (|side: f64, place: f64| law.component(side, place), 1000);
        let grid = |i: u32| (f64::from(i) + 0.5) / f64::from(n);
        let sides = [(outside / 2.0, outside), (f64::midpoint(outside, 1.0), 1.0 - outside)];
        let found: f64 = sides
            .iter()
            .map(|&(side, share)| {
                (0..n).map(|i| share * mean(side, grid(i)) / f64::from(n)).sum::<f64>()
            })
            .sum();
        assert!((found / gain - 1.0).abs() < 2e-2, "{epsilon}: {found}");
    }
    assert!(local_privunit(5, 0.0).is_err() && local_privunit(5, f64::NAN).is_err());
    assert!(local_privunit(0, 1.0).is_err());
    let bad = |outside, above, moment_weight| {
        certify(&Baseline::LocalPrivUnit { dimension: 2, outside, above, moment_weight })
    };
    assert!(bad(0.1, 0.1, 128).is_ok());
    assert_eq!(bad(0.1, 0.1, 256).unwrap_err(), BaselineError::MomentWeight(256));
    for (outside, above) in [(0.6, 0.1), (0.1, 0.6), (0.0, 0.1), (0.1, f64::NAN)] {
        assert!(matches!(bad(outside, above, 128), Err(BaselineError::Side { .. })));
    }
}

/// The first number decides the side and nothing else, the second the place on it.
#[test]
fn privunit_has_the_stated_sides() {
    let law = PrivUnit::new(0.2, 0.15).unwrap();
    let t = law.threshold();
    for place in [0.0, 0.1, 0.5, 0.999] {
        for (side, is_above) in [(0.0, false), (0.19, false), (0.199_999, false), (0.2, true)] {
            assert_eq!(law.component(side, place) >= t - 1e-9, is_above, "{side} {place}");
        }
        assert!(law.component(0.999, place) >= t - 1e-9);
    }
}
