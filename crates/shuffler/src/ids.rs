use std::collections::HashMap;

use incrowd_protocol::ReportId;

/// Ids of counted reports that may still come again, with the round they were made for.
#[derive(Default)]
pub(crate) struct Ids {
    rounds: HashMap<ReportId, u32>,
    /// No id is of an earlier round.
    oldest: Option<u32>,
    /// None is or was of a later one.
    newest: u32,
}

impl Ids {
    pub fn len(&self) -> usize {
        self.rounds.len()
    }

    pub fn has(&self, id: ReportId) -> bool {
        self.rounds.contains_key(&id)
    }

    pub fn insert(&mut self, id: ReportId, round: u32) {
        self.rounds.insert(id, round);
        self.note(round);
    }

    /// Adds ids of reports that were made for a round.
    pub fn extend(&mut self, ids: impl ExactSizeIterator<Item = ReportId>, round: u32) {
        self.rounds.reserve(ids.len());
        self.rounds.extend(ids.map(|id| (id, round)));
        self.note(round);
    }

    fn note(&mut self, round: u32) {
        self.oldest = Some(self.oldest.map_or(round, |oldest| oldest.min(round)));
        self.newest = self.newest.max(round);
    }

    /// The latest round that an id was ever of; 0 if there was none.
    pub fn newest(&self) -> u32 {
        self.newest
    }

    /// Forgets the ids of earlier rounds. It looks at all of them only if there may be some.
    pub fn forget_before(&mut self, round: u32) {
        if self.oldest.is_none_or(|oldest| oldest >= round) {
            return;
        }
        self.rounds.retain(|_, made_for| *made_for >= round);
        self.oldest = (!self.rounds.is_empty()).then_some(round);
        if self.rounds.is_empty() {
            self.rounds = HashMap::new();
        }
    }
}
