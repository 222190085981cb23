/// What a person can be shown: a slot of the model, and the features of the action there, those with
/// weights of the slot's own first. A model without slots has slot 0 only.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arm<'a> {
    /// Which slot of the model the action has.
    pub slot: u32,
    /// The features x.
    pub features: &'a [f64],
}

impl<'a> From<&'a [f64]> for Arm<'a> {
    /// An arm of a model without slots.
    fn from(features: &'a [f64]) -> Self {
        Self { slot: 0, features }
    }
}

impl<'a> From<&'a Vec<f64>> for Arm<'a> {
    fn from(features: &'a Vec<f64>) -> Self {
        features.as_slice().into()
    }
}

impl<'a, const N: usize> From<&'a [f64; N]> for Arm<'a> {
    fn from(features: &'a [f64; N]) -> Self {
        features.as_slice().into()
    }
}
