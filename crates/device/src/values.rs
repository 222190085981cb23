//! The values that a report is about.

use incrowd_protocol::{Blocks, Mechanism};

use crate::{Arm, InputProblem, clip};

/// The statistic of one arm and its reward, at its place among the coordinates of a report. Keeps
/// its buffers.
pub(crate) struct Values {
    blocks: Blocks,
    context_bound: f64,
    /// One entry more than the features.
    unit: Vec<f64>,
    /// One entry more than the coordinates of an arm's own features.
    local: Vec<f64>,
    /// All coordinates; empty where they are the arm's own.
    spread: Vec<f64>,
    /// The slot whose coordinates in `spread` may be other than zero.
    filled: Option<usize>,
}

impl Values {
    pub fn new(mechanism: &Mechanism) -> Self {
        let blocks = mechanism.blocks();
        let spread = if blocks.slots() > 0 { blocks.coordinates() } else { 0 };
        Self {
            blocks,
            context_bound: mechanism.context_bound(),
            unit: vec![0.0; blocks.features() + 1],
            local: vec![0.0; blocks.active_coordinates() + 1],
            spread: vec![0.0; spread],
            filled: None,
        }
    }

    /// Sets the values v of an arm and a reward, brought into their range first, and tells what was
    /// wrong with them. An arm of no slot has the values of the zero vector.
    pub fn set(&mut self, arm: Arm<'_>, reward: f64) -> Option<InputProblem> {
        let d = self.blocks.features();
        let slots = self.blocks.slots();
        let known = (arm.slot as usize) < slots.max(1);
        let features = if known { arm.features } else { &[] };
        let unit = &mut self.unit[..d];
        let (reward, problem) = clip::bound(features, reward, self.context_bound, unit);
        let problem = if known { problem } else { Some(InputProblem::Slot(slots)) };
        fill_values(&self.unit, reward, &mut self.local);
        if slots > 0 {
            let (spread, local) = (&mut self.spread, &self.local);
            if let Some(slot) = self.filled.take() {
                self.blocks.for_each_active(slot, |place, _| spread[place] = 0.0);
            }
            if known {
                let slot = arm.slot as usize;
                self.blocks.for_each_active(slot, |place, own| spread[place] = local[own]);
                self.filled = Some(slot);
            }
        }
        problem
    }

    /// The values of all coordinates.
    pub fn all(&self) -> &[f64] {
        if self.blocks.slots() > 0 { &self.spread } else { &self.local[..self.local.len() - 1] }
    }
}

/// v = (r u, lower triangle of u u' row by row), two entries at a time: `unit` and `values` have
/// one entry more than they need, and where a row has an odd length the next one overwrites what is
/// too much.
fn fill_values(unit: &[f64], reward: f64, values: &mut [f64]) {
    let d = unit.len() - 1;
    let (moment, gram) = values.split_at_mut(d);
    for (value, u) in moment.iter_mut().zip(unit) {
        *value = reward * u;
    }
    let pairs = unit.as_chunks::<2>().0;
    let mut start = 0;
    for (i, &u) in unit[..d].iter().enumerate() {
        let length = i / 2 + 1;
        let row = gram[start..start + 2 * length].as_chunks_mut::<2>().0;
        for (value, other) in row.iter_mut().zip(&pairs[..length]) {
            *value = [u * other[0], u * other[1]];
        }
        start += i + 1;
    }
}
