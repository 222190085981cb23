use std::sync::Arc;

use getrandom::SysRng;
use incrowd_protocol::{Model, Report, ReportId, TaskConfig};
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

use crate::{
    Arm, DeviceError, InputProblem, Participation, choose::Chooser, randomizer::Randomizer,
};

/// One person's device in one task.
///
/// # Privacy
/// A device draws from a ChaCha20 stream seeded by the operating system; make it after a process
/// forks, not before. It enforces one report per batch and k in all as long as
/// [`Device::participation`] is kept and given back to [`Device::resume`].
pub struct Device<R = ChaCha20Rng> {
    task: Arc<TaskConfig>,
    participation: Participation,
    randomizer: Randomizer,
    chooser: Chooser,
    rng: R,
}

/// A report to send as it is, and what was wrong with the input it was made from.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a device that stays silent breaks the privacy of everyone in the batch"]
pub struct Answer {
    /// Send these bytes (again these, on a retry).
    pub report: Report,
    /// For the application: the input was not as it should be. The report goes out all the same.
    pub problem: Option<InputProblem>,
}

impl Device {
    /// A device that has not answered yet.
    pub fn new(task: Arc<TaskConfig>) -> Result<Self, DeviceError> {
        Self::resume(task, Participation::default())
    }

    /// A device with the participation it had before a restart.
    pub fn resume(
        task: Arc<TaskConfig>,
        participation: Participation,
    ) -> Result<Self, DeviceError> {
        let rng = ChaCha20Rng::try_from_rng(&mut SysRng).map_err(DeviceError::Randomness)?;
        Ok(Self::with_rng(task, participation, rng))
    }
}

impl<R: Rng> Device<R> {
    /// A device whose randomness the caller supplies: for simulations and tests, never for people's
    /// data.
    #[cfg(feature = "simulation")]
    pub fn simulated(task: Arc<TaskConfig>, rng: R) -> Self {
        Self::with_rng(task, Participation::default(), rng)
    }

    fn with_rng(task: Arc<TaskConfig>, participation: Participation, rng: R) -> Self {
        let randomizer = Randomizer::new(task.mechanism());
        let chooser = Chooser::new(task.mechanism().blocks());
        Self { task, participation, randomizer, chooser, rng }
    }

    /// How often this device has answered; keep it.
    pub fn participation(&self) -> Participation {
        self.participation
    }

    /// Index of the arm to play: the best under the task's selection rule, equally good ones by
    /// lot, any one before the first model.
    ///
    /// # Reference
    /// Garcelon et al. 2021, Algorithm 1, step (c): argmax <x, theta> + beta |x|_{V^-1}.
    ///
    /// # Privacy
    /// Local: the arms' features do not leave the device, and the choice only does as what the
    /// person sees.
    pub fn choose<'a, A: Into<Arm<'a>>>(
        &mut self,
        model: Option<&Model>,
        arms: impl IntoIterator<Item = A>,
    ) -> Result<usize, DeviceError> {
        if model.is_some_and(|model| model.mechanism() != self.task.mechanism().hash()) {
            return Err(DeviceError::WrongModel);
        }
        self.chooser.choose(model, self.task.policy().selection(), arms, &mut self.rng)
    }

    /// The report for the arm that was played and its reward, for the published `round`.
    ///
    /// # Privacy
    /// Invalid values never silence a device: they are brought into their range (or replaced by
    /// zero), and the application learns of it. An error is only given for reasons that do not
    /// depend on the values. The report is made once: a retry sends the same bytes.
    pub fn report<'a>(
        &mut self,
        round: u32,
        arm: impl Into<Arm<'a>>,
        reward: f64,
    ) -> Result<Answer, DeviceError> {
        let mechanism = self.task.mechanism();
        let law = mechanism.round(round)?.law;
        self.participation.claim(round, mechanism)?;
        let mut id = [0; 16];
        self.rng.fill_bytes(&mut id);
        let (payload, problem) = self.randomizer.randomize(law, arm.into(), reward, &mut self.rng);
        let report = Report::new(mechanism, round, ReportId(id), payload)?;
        Ok(Answer { report, problem })
    }
}
