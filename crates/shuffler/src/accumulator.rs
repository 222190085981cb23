/// The sums of an unfinished batch: what single reports and the simulator's bulk path add to.
pub struct Accumulator {
    sums: Vec<i64>,
    count: u32,
    capacity: u32,
}

impl Accumulator {
    /// An empty batch of `capacity` reports with this many coordinates.
    pub fn new(coordinates: usize, capacity: u32) -> Self {
        Self { sums: vec![0; coordinates], count: 0, capacity }
    }

    /// Adds the sums of several reports at once, which must be as many sums and leave the batch
    /// unfinished.
    pub(crate) fn add_sums(&mut self, sums: &[i64], count: u32) {
        self.sums.iter_mut().zip(sums).for_each(|(sum, added)| *sum += added);
        self.count += count;
    }

    /// The sums so far, for the shuffler's own store.
    pub(crate) fn partial(&self) -> &[i64] {
        &self.sums
    }

    /// Reports counted so far.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Reports of a full batch.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Whether the batch can be released.
    pub fn is_full(&self) -> bool {
        self.count >= self.capacity
    }

    /// Counts one report: `report` adds what it says to the sums. A full batch takes no more:
    /// nothing changes then.
    pub fn add(&mut self, report: impl FnOnce(&mut [i64])) {
        if !self.is_full() {
            report(&mut self.sums);
            self.count += 1;
        }
    }

    /// Adds what reports that are counted already say, where it is drawn for all of them together.
    /// For the simulator.
    #[cfg(feature = "simulation")]
    pub fn add_drawn(&mut self, sums: &[i64]) {
        self.add_sums(sums, 0);
    }

    /// The sums, once the batch is full. An unfinished batch gives nothing: it can only be dropped.
    ///
    /// # Privacy
    /// The one way sums leave, and it consumes them.
    pub fn into_sums(self) -> Option<Vec<i64>> {
        self.is_full().then_some(self.sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_batch_gives_nothing_and_a_full_one_takes_nothing() {
        let mut batch = Accumulator::new(2, 2);
        batch.add(|sums| sums[0] += 1);
        assert_eq!(batch.count(), 1);
        assert_eq!(batch.into_sums(), None);

        let mut batch = Accumulator::new(2, 2);
        for values in [[1, 0], [-2, 3], [9, 9]] {
            batch.add(|sums| sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value));
        }
        assert_eq!(batch.into_sums(), Some(vec![-1, 3]));
    }
}
