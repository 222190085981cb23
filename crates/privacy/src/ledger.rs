//! What has been spent on one person: events are data, accountants interpret them, and what an accountant does not know is an error.

use incrowd_protocol::MechanismHash;
use serde::{Deserialize, Serialize};

use crate::{PrivacyError, composition, rounding::up};

/// Something that happened to one person's data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "value", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Event {
    /// A report left the device.
    LocalReport {
        /// Local epsilon of the report.
        epsilon_local: f64,
    },
    /// A batch with one report of the person was released.
    BatchRelease {
        /// Central epsilon of the release.
        epsilon_central: f64,
        /// Its delta.
        delta: f64,
    },
    /// Several events.
    Composed(Vec<Event>),
    /// The same event several times.
    Repeated {
        /// The event.
        event: Box<Event>,
        /// How many times, at least once.
        times: u32,
    },
    /// Data was used without any protection. No accountant has a finite epsilon for it.
    NonPrivate,
}

/// An event and the mechanism it belongs to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Hash of the mechanism.
    pub mechanism: MechanismHash,
    /// What happened.
    pub event: Event,
}

/// Every event about one person so far; entries are only ever added.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    entries: Vec<Entry>,
}

impl Ledger {
    /// A ledger without entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an event.
    pub fn record(&mut self, mechanism: MechanismHash, event: Event) {
        self.entries.push(Entry { mechanism, event });
    }

    /// Every entry, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Tells every event to an accountant.
    pub fn account(&self, accountant: &mut impl Accountant) -> Result<(), PrivacyError> {
        self.entries.iter().try_for_each(|entry| accountant.account(&entry.event))
    }
}

/// Turns events into a guarantee.
pub trait Accountant {
    /// Counts an event in. An event it does not know is an error and changes nothing.
    fn account(&mut self, event: &Event) -> Result<(), PrivacyError>;

    /// An upper bound on the epsilon of everything so far, at `delta`.
    fn epsilon(&self, delta: f64) -> Result<f64, PrivacyError>;
}

/// Adds up local epsilons: what someone learns who reads every report of the person on the wire.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LocalAccountant {
    total: f64,
}

impl Accountant for LocalAccountant {
    fn account(&mut self, event: &Event) -> Result<(), PrivacyError> {
        let mut added = 0.0;
        visit(event, 1, &mut |event, times| {
            let Event::LocalReport { epsilon_local } = *event else {
                return Err(PrivacyError::UnknownEvent(event.kind()));
            };
            added += check_local(epsilon_local)? * times as f64;
            Ok(())
        })?;
        self.total += added;
        Ok(())
    }

    /// Pure: the same at every `delta`, zero included.
    fn epsilon(&self, delta: f64) -> Result<f64, PrivacyError> {
        check_delta(delta)?;
        Ok(total(self.total))
    }
}

/// Composes releases: what someone learns who sees every released batch. Equal releases compose by the optimal rule, different ones
/// add up. A local report seen by name is a release with delta zero.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CentralAccountant {
    groups: Vec<Group>,
}

/// Equal releases.
#[derive(Debug, Clone, PartialEq)]
struct Group {
    epsilon: f64,
    delta: f64,
    times: u64,
}

impl CentralAccountant {
    fn add(groups: &mut Vec<Group>, epsilon: f64, delta: f64, times: u64) {
        let same = |g: &&mut Group| {
            g.epsilon.to_bits() == epsilon.to_bits() && g.delta.to_bits() == delta.to_bits()
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.times = group.times.saturating_add(times),
            None => groups.push(Group { epsilon, delta, times }),
        }
    }
}

impl Accountant for CentralAccountant {
    fn account(&mut self, event: &Event) -> Result<(), PrivacyError> {
        let mut groups = self.groups.clone();
        visit(event, 1, &mut |event, times| {
            let (epsilon, delta) = match *event {
                Event::LocalReport { epsilon_local } => (check_local(epsilon_local)?, 0.0),
                Event::BatchRelease { epsilon_central, delta } => {
                    if !(epsilon_central > 0.0 && epsilon_central.is_finite()) {
                        return Err(PrivacyError::EpsilonCentral(epsilon_central));
                    }
                    (epsilon_central, check_delta(delta)?)
                }
                _ => return Err(PrivacyError::UnknownEvent(event.kind())),
            };
            Self::add(&mut groups, epsilon, delta, times);
            Ok(())
        })?;
        self.groups = groups;
        Ok(())
    }

    /// What `delta` leaves after every release has had its own is shared equally among the groups of equal releases.
    fn epsilon(&self, delta: f64) -> Result<f64, PrivacyError> {
        check_delta(delta)?;
        let used: f64 = self.groups.iter().map(|g| g.times as f64 * g.delta).sum();
        if used > delta {
            return Err(PrivacyError::OutsideRegime {
                theorem: "composition",
                condition: format!("the releases so far have used a delta of {used}, not {delta}"),
            });
        }
        let share = (delta - used) / self.groups.len().max(1) as f64 * (1.0 - 1e-12);
        let mut sum = 0.0;
        for group in &self.groups {
            let times = u32::try_from(group.times).map_err(|_| too_many())?;
            let own = group.times as f64 * group.delta;
            sum += composition::compose(group.epsilon, group.delta, times, own + share)?;
        }
        Ok(total(sum))
    }
}

impl Event {
    /// The name of the kind, as in JSON.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::LocalReport { .. } => "local-report",
            Self::BatchRelease { .. } => "batch-release",
            Self::Composed(_) => "composed",
            Self::Repeated { .. } => "repeated",
            Self::NonPrivate => "non-private",
        }
    }
}

/// What is done with a simple event and how often it happened.
type Visitor<'a> = dyn FnMut(&Event, u64) -> Result<(), PrivacyError> + 'a;

/// Every simple event inside `event`.
fn visit(event: &Event, times: u64, simple: &mut Visitor) -> Result<(), PrivacyError> {
    match event {
        Event::Composed(events) => events.iter().try_for_each(|e| visit(e, times, simple)),
        Event::Repeated { times: 0, .. } => Err(PrivacyError::Participations(0)),
        Event::Repeated { event, times: more } => {
            let times = times.checked_mul(u64::from(*more)).ok_or_else(too_many)?;
            visit(event, times, simple)
        }
        _ => simple(event, times),
    }
}

fn check_local(epsilon_local: f64) -> Result<f64, PrivacyError> {
    if epsilon_local > 0.0 && epsilon_local.is_finite() {
        Ok(epsilon_local)
    } else {
        Err(PrivacyError::EpsilonLocal(epsilon_local))
    }
}

fn check_delta(delta: f64) -> Result<f64, PrivacyError> {
    if (0.0..1.0).contains(&delta) { Ok(delta) } else { Err(PrivacyError::Delta(delta)) }
}

/// Rounded up, but nothing spent is nothing.
fn total(sum: f64) -> f64 {
    if sum > 0.0 { up(sum) } else { 0.0 }
}

fn too_many() -> PrivacyError {
    PrivacyError::OutsideRegime {
        theorem: "composition",
        condition: format!("more than {} equal releases", u32::MAX),
    }
}
