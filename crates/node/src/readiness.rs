//! Whether a service does its work, and otherwise why not.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{sync::Mutex as AsyncMutex, time::timeout};

use crate::{Metrics, bounds::Bounds, role::Role};

/// How often a service looks at itself.
const PERIOD: Duration = Duration::from_secs(5);

/// How long a failure makes a service not ready.
const REMEMBERED: Duration = Duration::from_secs(5);

/// When something last failed, if it has not worked since.
#[derive(Default)]
pub(crate) struct RecentFailure(Mutex<Option<Instant>>);

impl RecentFailure {
    /// It failed now.
    pub fn record(&self) {
        self.set(Some(Instant::now()));
    }

    /// It works.
    pub fn clear(&self) {
        self.set(None);
    }

    /// Whether it failed a moment ago.
    pub fn is_recent(&self) -> bool {
        let failed = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failed.is_some_and(|at| at.elapsed() < REMEMBERED)
    }

    fn set(&self, failed: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = failed;
    }
}

/// What a service needs to do its work.
pub(crate) struct Readiness {
    roles: Vec<Arc<dyn Role>>,
    /// Of the listener that does the work.
    bounds: Bounds,
    metrics: Arc<Metrics>,
    /// What was found last: changes are logged.
    last: Mutex<Result<(), String>>,
}

impl Readiness {
    pub fn new(roles: Vec<Arc<dyn Role>>, bounds: Bounds, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { roles, bounds, metrics, last: Mutex::new(Ok(())) })
    }

    /// Whether the service could do its work now, and otherwise why not.
    pub async fn check(&self) -> Result<(), String> {
        let ready = self.find_out().await;
        self.metrics.is_ready(ready.is_ok());
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if *last != ready {
            match &ready {
                Ok(()) => tracing::info!("ready again"),
                Err(reason) => tracing::error!(reason, "not ready"),
            }
            last.clone_from(&ready);
        }
        ready
    }

    async fn find_out(&self) -> Result<(), String> {
        if let Some(reason) = self.bounds.exhausted() {
            return Err(reason.to_owned());
        }
        for role in &self.roles {
            role.ready().await?;
        }
        Ok(())
    }

    /// Looks again and again, for the metrics and the log, until it is aborted.
    pub async fn watch(self: Arc<Self>) {
        loop {
            let _ = self.check().await;
            tokio::time::sleep(PERIOD).await;
        }
    }
}

/// Something that takes a while to find out. Whoever asks shares one answer a second, so that
/// asking cannot keep others from their work.
#[derive(Default)]
pub(crate) struct Probe<T = ()>(AsyncMutex<Option<(Instant, Result<T, String>)>>);

impl<T: Clone> Probe<T> {
    const FRESH: Duration = Duration::from_secs(1);
    const PATIENCE: Duration = Duration::from_secs(5);

    /// The next one who asks looks, unless somebody does already.
    pub fn forget(&self) {
        if let Ok(mut last) = self.0.try_lock() {
            *last = None;
        }
    }

    pub async fn ask(&self, look: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let mut last = self.0.lock().await;
        if let Some((at, found)) = &*last
            && at.elapsed() < Self::FRESH
        {
            return found.clone();
        }
        let found = timeout(Self::PATIENCE, look).await;
        let found = found.unwrap_or_else(|_| Err("no answer in time".into()));
        *last = Some((Instant::now(), found.clone()));
        found
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    #[test]
    fn a_failure_is_remembered_until_it_is_old_or_cleared() {
        let failure = RecentFailure::default();
        assert!(!failure.is_recent());
        failure.record();
        assert!(failure.is_recent());
        failure.clear();
        assert!(!failure.is_recent());
        failure.set(Instant::now().checked_sub(REMEMBERED));
        assert!(!failure.is_recent());
    }

    #[tokio::test]
    async fn r29_whoever_asks_often_looks_rarely() {
        let (probe, looks, began) = (Probe::default(), AtomicU64::new(0), Instant::now());
        let ask = async || {
            let look = async {
                looks.fetch_add(1, Relaxed);
                Ok(7)
            };
            assert_eq!(probe.ask(look).await, Ok(7));
        };
        for _ in 0..1000 {
            ask().await;
        }
        let before = looks.load(Relaxed);
        assert!(before <= began.elapsed().as_secs() + 1);
        probe.forget();
        ask().await;
        assert!(looks.load(Relaxed) > before);
    }
}
