//! What a client must have been told: none of its flushes succeeds while an earlier flush, given by any client, has failed and may have
//! lost what this client had written, and no answer has told it so.

use crate::model::Tick;
use crate::task::{Asked, Kind};

/// What one client knows of its writes.
#[derive(Debug, Default)]
pub struct Hearing {
    /// Writes that it was told are done, and no flush has made stable: when, and how many flushes of the disk had failed by then.
    unflushed: Vec<(Tick, u64)>,
    /// Of how many failures it has heard, at the most.
    told: u64,
}

impl Hearing {
    /// A command was answered at this moment, when so many flushes of the disk had failed; when it was given, `failed_before`.
    ///
    /// # Errors
    /// When it was told that all is stable, and something may be lost.
    pub fn answered(
        &mut self,
        asked: &Asked,
        is_good: bool,
        at: Tick,
        failed_before: u64,
        failed: u64,
    ) -> Result<(), String> {
        let is_lost = |(_, had_failed): &(Tick, u64)| *had_failed < failed_before && self.told < failed_before;
        match asked.kind {
            Kind::Flush if is_good => {
                let mut covered = self.unflushed.iter().filter(|(written, _)| *written < asked.begun());
                if covered.any(is_lost) {
                    return Err(format!("may have lost writes: {failed_before} flushes had failed, {self:?}"));
                }
                self.unflushed.retain(|(written, _)| *written > asked.begun());
            }
            Kind::Write { is_stable: false } | Kind::Unmap if is_good => self.unflushed.push((at, failed)),
            // Whatever it was that failed: it may have been the flush.
            Kind::Flush | Kind::Write { .. } | Kind::Unmap if !is_good => self.told = failed,
            _ => {}
        }
        Ok(())
    }
}
