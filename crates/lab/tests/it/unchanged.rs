//! The numbers of experiments that name no knob, to the last digit, as they were before there were
//! knobs: whoever changes a stream of random numbers or a default must mean to.

use crate::experiment::{Scratch, experiment};

const ALGORITHMS: &str = r#"["sblb", "sblb-growing", "jdp-tree", "ldp-gaussian", "sdp-vec", "linucb-lowswitch", "random",
    { name = "sblb", label = "words", local_epsilon = 4, encoding = "codebook" }]"#;

/// An environment, and the regret of each of [`ALGORITHMS`] in it.
const REGRETS: [(&str, &str); 8] = [
    (
        r#"{ kind = "synthetic" }"#,
        "78.67808060928671 82.40535487712613 100.50278024956002 742.2997064758815 \
         94.24383327122999 6.472828103463391 621.2408137984004 351.9424360856244",
    ),
    (
        r#"{ kind = "synthetic", contexts = "one-hot", gap = 0.2 }"#,
        "63.439079624584835 69.51779764386987 73.38088026045472 267.9777172427093 \
         26.608249767572843 1.3169380100878583 212.86798065145712 301.5365802396258",
    ),
    (
        r#"{ kind = "synthetic", contexts = "correlated" }"#,
        "66.91239586539588 54.54868453544484 55.65485997565551 346.1601991991812 \
         59.94189997119414 3.4201402664214147 319.6609066715878 160.79274681692044",
    ),
    (
        r#"{ kind = "synthetic", contexts = "anisotropic", rewards = "bounded" }"#,
        "121.00695986671344 127.8921136372063 99.45226281190071 660.130513920377 \
         100.42477352121672 2.093508316541156 595.9808320253501 387.7379110221246",
    ),
    (
        r#"{ kind = "synthetic", contexts = "heavy-tailed" }"#,
        "100.11415869518262 67.43155714990729 93.13816407445286 202.3091723439209 \
         98.77690968337217 18.448237285037205 162.4335398181575 235.53364323980725",
    ),
    (
        r#"{ kind = "fixed-arms" }"#,
        "150.84454169364827 254.3469412046604 149.66208425864968 923.8111100783595 \
         114.94820852834512 13.354804498391239 633.2945387813795 635.0868375349547",
    ),
    (
        r#"{ kind = "synthetic", drift = 1.5707963267948966 }"#,
        "151.00702627065166 272.2507687021971 153.3908042619021 350.8385312176764 \
         194.87474552640145 57.58997392845551 620.9937979779288 196.8511980010208",
    ),
    (
        r#"{ kind = "ordered", gap = 0.1 }"#,
        "36.81324534765222 29.940776830556846 71.90668219440055 137.66748402910693 \
         22.106481175023003 10.298495665766778 104.61551102351658 156.9904951057887",
    ),
];

#[test]
fn without_knobs_every_number_is_as_ever() {
    let environments = REGRETS.map(|(environment, _)| environment).join(",\n");
    let text = format!(
        "algorithms = {ALGORITHMS}\nhorizons = [1500]\ndimensions = [4]\ncentral_epsilons = [2]\n\
         local_epsilons = ['unlimited']\nruns = 1\nseed = 7\nenvironments = [{environments}]"
    );
    let directory = Scratch::new("unchanged");
    let finished = experiment(&text, &directory.0, 2);
    let found: Vec<f64> = finished.rows.iter().filter_map(|row| row.regret).collect();
    let regrets = REGRETS.iter().flat_map(|(_, regrets)| regrets.split_whitespace());
    let expected: Vec<f64> = regrets.map(|regret| regret.parse().unwrap()).collect();
    assert_eq!(found, expected);
}
