//! Against mpmath (`tests/reference/numeric.py`), to the tolerances that [`slack`] and the
//! functions state.

use serde_json::Value;

use super::{
    special::{
        density_at_tail, deviance, exp_excess_upper, ln_choose, mills, normal_density,
        normal_quantile, normal_tail, power_excess_upper, stirling_error,
    },
    *,
};

/// Every row of a table: the arguments by name, and the value.
fn rows(table: &str) -> Vec<(Value, f64)> {
    let all: Value =
        serde_json::from_str(include_str!("../../tests/reference/numeric.json")).unwrap();
    let rows = all[table].as_array().unwrap();
    assert!(rows.len() >= 7);
    rows.iter().map(|row| (row.clone(), row["value"].as_str().unwrap().parse().unwrap())).collect()
}

fn argument(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap()
}

fn law(row: &Value) -> (Binomial, u64) {
    let law = Binomial::new(row["trials"].as_u64().unwrap(), argument(row, "chance"));
    (law, row["count"].as_u64().unwrap())
}

fn is_near(found: f64, wanted: f64, tolerance: f64, row: &Value) {
    assert!((found - wanted).abs() <= tolerance, "{row}: {found}");
}

/// At least the value, and above it by at most a share of it.
fn is_just_above(found: f64, wanted: f64, share: f64, row: &Value) {
    assert!(found >= wanted && found <= wanted * (1.0 + share), "{row}: {found}");
}

#[test]
fn ln_choose_is_right_to_a_few_ulp_of_ln_factorial() {
    for (row, wanted) in rows("ln_choose") {
        let (n, k) = (argument(&row, "n"), argument(&row, "k"));
        let tolerance = 4.0 * f64::EPSILON * (1.0 + n * n.ln());
        is_near(ln_choose(n, k), wanted, tolerance, &row);
    }
}

#[test]
fn deviance_does_not_cancel() {
    for (row, wanted) in rows("deviance") {
        let found = deviance(argument(&row, "x"), argument(&row, "mean"));
        is_near(found, wanted, 1e-13 * wanted, &row);
    }
}

#[test]
fn stirling_error_is_absolute() {
    for (row, wanted) in rows("stirling_error") {
        is_near(stirling_error(argument(&row, "x")), wanted, 1e-14, &row);
    }
}

#[test]
fn normal_tails_and_mills_ratios() {
    for (row, wanted) in rows("normal_tail") {
        is_near(normal_tail(argument(&row, "x")), wanted, 4.0 * f64::EPSILON * wanted, &row);
    }
    for (row, wanted) in rows("mills") {
        is_near(mills(argument(&row, "x")), wanted, slack::MILLS / 4.0 * wanted, &row);
    }
}

#[test]
fn normal_quantiles() {
    for (row, wanted) in rows("normal_quantile") {
        let tail = argument(&row, "tail");
        is_near(normal_quantile(tail), wanted, 1e-12 * wanted.max(1.0), &row);
        let density = normal_density(wanted);
        is_near(density_at_tail(tail), density, 1e-11 * density, &row);
    }
}

/// Against mpmath, and against a convolution of two binomials.
#[test]
fn laws_of_coins() {
    for (row, wanted) in rows("coins") {
        let whole = |name: &str| row[name].as_u64().unwrap();
        let (ups, downs, keep) = (whole("ups"), whole("downs"), argument(&row, "keep"));
        let law = Coins { ups, downs, keep }.law(1e-60);
        let (up, down) = (f64::midpoint(1.0, keep), f64::midpoint(1.0, -keep));
        let (first, one) = Binomial::new(ups, up).pmf_with_start();
        let (second, two) = Binomial::new(downs, down).pmf_with_start();
        let convolved = one.convolve(&two);
        let heaviest = |law: &Pmf| {
            let by = |a: &(usize, &f64), b: &(usize, &f64)| a.1.total_cmp(b.1);
            law.values.iter().enumerate().max_by(by).unwrap().0
        };
        // Positions by the mode.
        let at = (whole("count") - first - second) as usize + heaviest(&law) - heaviest(&convolved);
        let tolerance = slack::STEP * law.values.len() as f64 * wanted;
        is_near(law.values[at], wanted, tolerance, &row);
        is_near(
            convolved.values[at + heaviest(&convolved) - heaviest(&law)],
            wanted,
            1e-11 * wanted,
            &row,
        );
    }
    // A point is left out only where almost nothing is.
    let law = Coins { ups: 10_000, downs: 30_000, keep: 0.3 }.law(1e-12);
    let total: f64 = law.values.iter().sum();
    assert!((total - 1.0).abs() < 1e-12 && law.values[0] < 1e-12 && law.values.len() < 3000);
}

#[test]
fn excesses_are_above_and_close() {
    for (row, wanted) in rows("power_excess") {
        let found = power_excess_upper(argument(&row, "z"), argument(&row, "power"));
        // Large powers are rounded, by a share that is covered elsewhere.
        is_just_above(found * (1.0 + slack::PRODUCT), wanted, 2.0 * slack::ROUNDING, &row);
    }
    for (row, wanted) in rows("exp_excess") {
        let found = exp_excess_upper(argument(&row, "z"));
        is_just_above(found, wanted, 2.0 * slack::EXP_EXCESS, &row);
    }
}

#[test]
fn binomial_masses() {
    for (row, wanted) in rows("point") {
        let (law, count) = law(&row);
        let from_mean = (count as f64 - argument(&row, "trials") * argument(&row, "chance")).abs();
        let share = 2e-13 + f64::EPSILON * from_mean;
        is_near(law.point(count), wanted, share * wanted, &row);
        let (first, pmf) = law.pmf_with_start();
        if let Some(&found) = count.checked_sub(first).and_then(|at| pmf.values.get(at as usize)) {
            // Off by four ulp for every step from the mode.
            let steps = pmf.values.len() as f64;
            is_near(found, wanted, (4.0 * f64::EPSILON * steps + 1e-14) * wanted, &row);
        }
    }
}

#[test]
fn binomial_tails() {
    for (row, wanted) in rows("at_most") {
        let (law, count) = law(&row);
        let share = 2.0 * (slack::ROUNDING + slack::SERIES_REST);
        is_just_above(law.at_most_upper(count).value(), wanted, share, &row);
    }
    for (row, wanted) in rows("ln_at_least") {
        let (law, count) = law(&row);
        // Half of what a failure probability is lowered by.
        is_near(law.ln_at_least(count), wanted, slack::LN_GAMMA / 2.0, &row);
    }
}

#[test]
fn convolution_adds_coins() {
    for (a, b) in [(1, 1), (5, 2), (7, 20), (10, 11)] {
        let sum = Binomial::new(a, 0.3).pmf().convolve(&Binomial::new(b, 0.3).pmf());
        let wanted = Binomial::new(a + b, 0.3).pmf();
        assert_eq!(sum.values.len(), wanted.values.len());
        for (found, wanted) in sum.values.iter().zip(&wanted.values) {
            assert!((found / wanted - 1.0).abs() < 1e-12, "{a} + {b}: {found} {wanted}");
        }
    }
    let coin = Binomial::new(9, 0.3).pmf().with_coin(0.3);
    assert!(
        coin.values
            .iter()
            .zip(&Binomial::new(10, 0.3).pmf().values)
            .all(|(a, b)| (a / b - 1.0).abs() < 1e-12)
    );
}

/// P(Bin(10, 1/2) < 2) = 11/1024 = 0.0107; P(Bin < 1) = 0.00098. Chernoff is a little more careful,
/// never less.
#[test]
fn a_quantile_is_rare_enough() {
    let q = Binomial::new(10, 0.5).lower_quantile(0.0107);
    assert!(q <= 1);
    let law = Binomial::new(200, 0.3);
    let below = |q: u64| law.pmf().values.iter().take(q as usize).sum::<f64>();
    for miss in [1e-2, 1e-4, 1e-8] {
        let q = law.lower_quantile(miss);
        assert!(below(q) <= miss && below(q + 8) > miss / 100.0, "{q} {miss}");
    }
    assert_eq!(Binomial::new(3, 0.5).lower_quantile(1e-9), 0);
}

#[test]
fn a_window_leaves_out_no_more_than_its_tail() {
    let law = Binomial::new(400, 0.2).pmf();
    for tail in [0.1, 1e-6, 1e-20] {
        let window = law.window(tail).unwrap();
        let outside = law.values[..window.start].iter().chain(&law.values[window.end..]);
        let (outside, edge) = (outside.sum::<f64>(), law.values[window.start]);
        assert!(outside <= tail && outside + 2.0 * edge > tail / 2.0, "{tail}: {outside}");
    }
    assert_eq!(law.window(slack::SMALLEST_TAIL / 2.0), None);
}

#[test]
fn bounds_round_outward() {
    for value in [0.0, f64::MIN_POSITIVE, 1e-300, 0.1, 1.0, 1e300] {
        assert!(Upper::of(value).value() > value && Upper::nearest(value).value() > value);
        assert!(Lower::of(value).value() < value);
        assert!((Upper::of(value) + Upper::ZERO).value() > Upper::of(value).value());
    }
    // 0.1 + 0.2 rounds up by itself, 0.1 + 0.7 rounds down.
    let sum = |a, b| (Upper::ZERO + Upper::nearest(a) + Upper::nearest(b)).value();
    assert!(sum(0.1, 0.2) > 0.3 && sum(0.1, 0.7) > 0.8);
    assert!(Lower::of(0.25).complement().value() > 0.75);
    assert!(Lower::ZERO.complement().is_at_most(1.0));
    assert!(!Upper::of(f64::NAN).is_at_most(f64::INFINITY));
    assert!(up(0.5) <= 0.5 * (1.0 + 2.0 * slack::ROUNDING));
}

/// Both ends are where the condition says, whichever is the larger one.
#[test]
fn bisection_returns_tested_ends() {
    let up = bisect(Ends { holds: 8.0, fails: 0.0 }, relative(1e-9), |x| x * x >= 2.0);
    let down = bisect(Ends { holds: 0.0, fails: 8.0 }, relative(1e-9), |x| x * x <= 2.0);
    for (ends, name) in [(up, "up"), (down, "down")] {
        assert!((ends.holds - 2f64.sqrt()).abs() < 2e-9, "{name}: {ends:?}");
        assert!((ends.fails - 2f64.sqrt()).abs() < 2e-9, "{name}: {ends:?}");
    }
    assert!(up.holds * up.holds >= 2.0 && up.fails * up.fails < 2.0);
    assert!(down.holds * down.holds <= 2.0 && down.fails * down.fails > 2.0);
    // Neighbouring floats end the search however small the tolerance.
    let exact = bisect(Ends { holds: 8.0, fails: 1.0 }, relative(0.0), |x| x * x >= 2.0);
    assert_eq!(exact.fails.next_up().to_bits(), exact.holds.to_bits());
    for edge in [1, 2, 63, 64, 99, 100] {
        let ends = bisect(Ends { holds: 100, fails: 0 }, whole, |n| n >= edge);
        assert_eq!(ends, Ends { holds: edge, fails: edge - 1 });
        let ends = bisect(Ends { holds: 0, fails: 101 }, whole, |n| n <= edge);
        assert_eq!(ends, Ends { holds: edge, fails: edge + 1 });
    }
    let wide = bisect(Ends { holds: 1e12, fails: 1e-3 }, geometric(1e-6), |x| x >= 5.0);
    assert!(wide.holds >= 5.0 && wide.fails < 5.0 && wide.holds <= wide.fails * (1.0 + 1e-6));
    let ends = bisect(Ends { holds: 8.0, fails: 0.0 }, halvings(3), |x| x >= 5.5);
    assert_eq!(ends, Ends { holds: 6.0, fails: 5.0 });
}

#[test]
fn the_first_error_ends_a_search() {
    let mut asked = 0;
    let found = try_bisect(Ends { holds: 0, fails: 100 }, whole, |n| {
        asked += 1;
        if n < 40 { Err(n) } else { Ok(false) }
    });
    assert_eq!((found, asked), (Err(25), 2));
}
