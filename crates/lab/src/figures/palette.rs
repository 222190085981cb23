//! One look for each algorithm, the same in every figure of every experiment.
//!
//! Hues are families (ours blue, trusted servers red to brown, other shuffled algorithms green,
//! local ones pink, no privacy black and grey), markers and dashes are members: nobody needs to
//! tell colours apart.

use incrowd_chart::{
    Colour, Dash, Fill, Marker, Style,
    colour::{
        BLUE, BROWN, FOREST, GREEN, GREY, HUES, INK, LIME, MAROON, NAVY, OLIVE, ORANGE, PINK,
        PURPLE, SKY, VERMILION,
    },
};

const SOLID: Dash = (0.0, 0.0);
const LONG: Dash = (11.0, 4.0);
const MIDDLE: Dash = (6.0, 4.0);
const SHORT: Dash = (2.5, 3.0);

/// Name, look, and who it is in a few words.
type Known = (&'static str, Colour, Dash, Marker, &'static str);

/// A label belongs to the longest name that it begins with.
const KNOWN: [Known; 19] = [
    ("sblb-growing", BLUE, SOLID, Marker::Circle, "incrowd, growing batches"),
    ("sblb", SKY, SOLID, Marker::Square, "incrowd, equal batches"),
    ("sblb-fixed", NAVY, SOLID, Marker::Diamond, "incrowd, a model from every batch"),
    ("jdp-tree", VERMILION, LONG, Marker::Up, "trusted server, binary tree"),
    ("jdp-growing", ORANGE, LONG, Marker::Down, "trusted server, growing batches"),
    ("jdp-factorized", BROWN, LONG, Marker::Left, "trusted server, correlated noise"),
    (
        "jdp-factorized-growing",
        MAROON,
        LONG,
        Marker::Right,
        "trusted server, correlated noise, growing batches",
    ),
    ("sdp-vec-growing", GREEN, MIDDLE, Marker::Cross, "shuffled bits, growing batches"),
    ("sdp-vec", LIME, MIDDLE, Marker::Plus, "shuffled bits, equal batches"),
    ("sdp-amp", FOREST, MIDDLE, Marker::Asterisk, "shuffled Gaussian reports"),
    ("ldp-gaussian", PINK, SHORT, Marker::Star, "Gaussian noise on each device"),
    ("ldp-privunit", PURPLE, SHORT, Marker::Hexagon, "best known noise on each device"),
    ("paper", OLIVE, SOLID, Marker::Hexagon, "the paper's own parameters"),
    ("linucb", INK, MIDDLE, Marker::Tick, "no privacy"),
    ("linucb-lowswitch", GREY, LONG, Marker::Tick, "no privacy, few models"),
    ("frozen", INK, MIDDLE, Marker::Bar, "the prior alone, never changed"),
    ("greedy", GREY, MIDDLE, Marker::Diamond, "no privacy, no exploration"),
    ("random", GREY, SHORT, Marker::Bar, "learns nothing"),
    ("oracle", INK, LONG, Marker::Bar, "knows the best choice"),
];

/// Outlines for labels that begin with no name.
const MARKERS: [Marker; 5] =
    [Marker::Circle, Marker::Square, Marker::Up, Marker::Diamond, Marker::Down];
/// Looks of the second, third and later variants of one algorithm.
const VARIANTS: [(Dash, Fill); 3] =
    [((8.0, 4.0), Fill::Hollow), ((2.5, 3.0), Fill::Target), ((14.0, 3.0), Fill::Hollow)];

/// The looks of an experiment's labels.
pub struct Palette(Vec<(String, Style)>);

impl Palette {
    /// Looks for labels in the order of a table.
    pub fn new<'a>(labels: impl Iterator<Item = &'a str>) -> Self {
        let mut distinct: Vec<&str> = Vec::new();
        for label in labels {
            if !distinct.contains(&label) {
                distinct.push(label);
            }
        }
        let taken: Vec<Colour> =
            distinct.iter().filter_map(|label| known(label)).map(|known| known.1).collect();
        let mut free = HUES.iter().filter(|hue| !taken.contains(hue)).cycle();
        let mut strangers = 0;
        let mut looks = Vec::new();
        for &label in &distinct {
            let style = match known(label) {
                Some(known) => variant(known, label, &distinct),
                None => {
                    let marker = MARKERS[strangers % MARKERS.len()];
                    strangers += 1;
                    let colour = free.next().copied().unwrap_or(GREY);
                    Style { colour, dash: SOLID, marker, fill: Fill::Full }
                }
            };
            looks.push((label.into(), style));
        }
        Self(looks)
    }

    /// The look of a label.
    pub fn style(&self, label: &str) -> Style {
        let found = self.0.iter().find(|look| look.0 == label);
        found.map_or(
            Style { colour: GREY, dash: SHORT, marker: Marker::Bar, fill: Fill::Full },
            |look| look.1,
        )
    }
}

/// Who an algorithm is, in a few words; empty for labels that begin with no name.
pub fn gloss(label: &str) -> &'static str {
    known(label).map_or("", |known| known.4)
}

fn known(label: &str) -> Option<&'static Known> {
    let label = label.to_ascii_lowercase();
    let begins = |known: &&Known| {
        label.strip_prefix(known.0).is_some_and(|rest| {
            !rest.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '-')
        })
    };
    KNOWN.iter().filter(begins).max_by_key(|known| known.0.len())
}

/// The bare name looks as it always does; the others of its labels are variants of it in the order
/// of the table. Without the bare name the first of them looks like it.
fn variant(known: &Known, label: &str, labels: &[&str]) -> Style {
    let &(name, colour, dash, marker, _) = known;
    let same = |other: &&&str| self::known(other).is_some_and(|other| other.0 == name);
    let mut ranks: Vec<&str> = labels.iter().filter(same).copied().collect();
    // Stable: only the bare name moves to the front.
    ranks.sort_by_key(|other| !other.eq_ignore_ascii_case(name));
    let rank = ranks.iter().position(|other| *other == label).unwrap_or(0);
    match rank.checked_sub(1) {
        None => Style { colour, dash, marker, fill: Fill::Full },
        Some(rank) => {
            let (dash, fill) = VARIANTS[rank % VARIANTS.len()];
            Style { colour, dash, marker, fill }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::AlgorithmName;

    /// Changing a line here changes every figure that was ever shown.
    #[test]
    fn every_algorithm_has_its_colour() {
        let expected = [
            ("sblb", "sky"),
            ("sblb-fixed", "navy"),
            ("sblb-growing", "blue"),
            ("linucb", "ink"),
            ("linucb-lowswitch", "grey"),
            ("jdp-tree", "vermilion"),
            ("jdp-growing", "orange"),
            ("jdp-factorized", "brown"),
            ("jdp-factorized-growing", "maroon"),
            ("ldp-gaussian", "pink"),
            ("ldp-privunit", "purple"),
            ("sdp-amp", "forest"),
            ("sdp-vec", "lime"),
            ("sdp-vec-growing", "green"),
            ("frozen", "ink"),
            ("greedy", "grey"),
            ("random", "grey"),
            ("oracle", "ink"),
        ];
        assert_eq!(AlgorithmName::ALL.map(AlgorithmName::name), expected.map(|pair| pair.0));
        let all = Palette::new(expected.iter().map(|pair| pair.0));
        for (name, colour) in expected {
            assert_eq!(all.style(name).colour.name, colour, "{name}");
            // Company does not matter.
            let alone = Palette::new(["mine", name].into_iter());
            assert_eq!(alone.style(name), all.style(name), "{name}");
            assert!(!gloss(name).is_empty(), "{name}");
        }
    }

    /// Whoever sees no colours has marker, fill or dash.
    #[test]
    fn looks_differ_without_colour() {
        let labels: Vec<&str> = KNOWN
            .iter()
            .map(|known| known.0)
            .chain(["sblb-growing, local at most 8", "sblb-growing, bits", "sblb, bits"])
            .collect();
        let palette = Palette::new(labels.iter().copied());
        for (i, a) in labels.iter().enumerate() {
            for b in &labels[..i] {
                let (x, y) = (palette.style(a), palette.style(b));
                let same = x.marker == y.marker && x.fill == y.fill && x.dash == y.dash;
                assert!(!same, "{a} and {b}");
            }
        }
        // Ours are solid, baselines are not.
        for known in &KNOWN {
            let ours = known.0.starts_with("sblb") || known.0 == "paper";
            assert_eq!(known.2 == SOLID, ours, "{}", known.0);
        }
    }

    #[test]
    fn variants_keep_the_colour() {
        let labels = ["sblb-growing, local at most 8", "sblb-growing", "sblb-growing-x", "Sblb"];
        let palette = Palette::new(labels.into_iter());
        let [cap, bare, stranger, other] = labels.map(|label| palette.style(label));
        assert_eq!((cap.colour, cap.marker), (bare.colour, bare.marker));
        assert_eq!((bare.fill, cap.fill), (Fill::Full, Fill::Hollow));
        assert!(bare.dash == SOLID && cap.dash != SOLID);
        assert!(stranger.colour != bare.colour && stranger.colour != other.colour);
        assert_eq!(other.colour, SKY);
        let pair = ["sblb, by time", "sblb, by count"];
        let palette = Palette::new(pair.into_iter());
        assert_eq!(pair.map(|label| palette.style(label).fill), [Fill::Full, Fill::Hollow]);
    }
}
