use incrowd_protocol::Layout;

use super::{Environment, Person};

/// The same people in other units: features times a factor, the parameter divided by it, so every
/// mean reward stays as it is.
pub struct Scaled<E> {
    people: E,
    factor: f64,
    parameter: Option<Vec<f64>>,
}

impl<E: Environment> Scaled<E> {
    /// `factor` is above 0 and finite.
    pub(super) fn new(people: E, factor: f64) -> Self {
        let mut scaled = Self { people, factor, parameter: None };
        scaled.divide();
        scaled
    }

    /// The parameter of the current person in the new units.
    fn divide(&mut self) {
        let divided = |theta: &[f64]| theta.iter().map(|entry| entry / self.factor).collect();
        self.parameter = self.people.parameter().map(divided);
    }
}

impl<E: Environment> Environment for Scaled<E> {
    fn dimension(&self) -> usize {
        self.people.dimension()
    }

    fn layout(&self) -> Layout {
        self.people.layout()
    }

    fn next_person(&mut self, person: &mut Person) {
        self.people.next_person(person);
        person.arms.iter_mut().for_each(|entry| *entry *= self.factor);
        self.divide();
    }

    fn reward(&mut self, arm: usize) -> Option<f64> {
        self.people.reward(arm)
    }

    fn parameter(&self) -> Option<&[f64]> {
        self.parameter.as_deref()
    }
}
