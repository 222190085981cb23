/// The sums of an unfinished batch: what single reports and the simulator's bulk path add to.
pub struct Accumulator {
    sums: Vec<u64>,
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
    pub(crate) fn add_sums(&mut self, sums: &[u64], count: u32) {
        self.sums.iter_mut().zip(sums).for_each(|(sum, added)| *sum += added);
        self.count += count;
    }

    /// The sums so far, for the shuffler's own store.
    pub(crate) fn partial(&self) -> &[u64] {
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

    /// Adds one report's counts, which must be as many as the sums. A full batch takes no more:
    /// nothing changes then.
    pub fn add(&mut self, counts: &[u16]) {
        if !self.is_full() && counts.len() == self.sums.len() {
            for (sum, &count) in self.sums.iter_mut().zip(counts) {
                *sum += u64::from(count);
            }
            self.count += 1;
        }
    }

    /// Adds ones of reports that are counted already, whose other coins were tossed together. For
    /// the simulator.
    #[cfg(feature = "simulation")]
    pub fn add_coins(&mut self, ones: &[u64]) {
        self.add_sums(ones, 0);
    }

    /// The sums, once the batch is full. An unfinished batch gives nothing: it can only be dropped.
    ///
    /// # Privacy
    /// The one way sums leave, and it consumes them.
    pub fn into_sums(self) -> Option<Vec<u64>> {
        self.is_full().then_some(self.sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_batch_gives_nothing_and_a_full_one_takes_nothing() {
        let mut batch = Accumulator::new(2, 2);
        batch.add(&[1, 0]);
        batch.add(&[1, 1, 1]);
        assert_eq!(batch.count(), 1, "another length does not count");
        assert_eq!(batch.into_sums(), None);

        let mut batch = Accumulator::new(2, 2);
        for counts in [[1, 0], [1, 3], [9, 9]] {
            batch.add(&counts);
        }
        assert_eq!(batch.into_sums(), Some(vec![2, 3]));
    }
}
