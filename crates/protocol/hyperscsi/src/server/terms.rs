//! What a connection's two ends want of each other, what came of it, and how that changes while the connection lives.

use std::time::Duration;

use sanwire_core::Instant;

use super::offences::Offence;
use crate::options::{Agreed, DeviceOption, OptionConflict, Options};
use crate::wire::live::NewOptions;

/// A change that was not answered is told again after this; and no two changes are told within it.
const AGAIN: Duration = Duration::from_millis(200);

/// The terms of one connection.
#[derive(Debug)]
pub(super) struct Terms {
    ours: Options,
    agreed: Agreed,
    transfer_max_bytes: u32,
    changes: u32,
    /// What we want from now on, until the client has answered; and when to say so (again).
    asking: Option<(Options, Instant)>,
    /// How often we have asked without an answer: so many may still come.
    unanswered: u32,
    /// Before then no further change is told.
    quiet_until: Instant,
}

impl Terms {
    /// # Errors
    /// When one end enforces what the other does not support.
    pub(super) fn new(ours: Options, theirs: &Options, transfer_max_bytes: u32) -> Result<Self, OptionConflict> {
        let agreed = Agreed::new(&ours, theirs)?;
        let transfer_max_bytes =
            agreed.transfer_max_bytes.map_or(transfer_max_bytes, |max| max.min(transfer_max_bytes));
        let quiet_until = Instant::ZERO;
        Ok(Terms { ours, agreed, transfer_max_bytes, changes: 0, asking: None, unanswered: 0, quiet_until })
    }

    pub(super) fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// The largest data transfer of a command.
    pub(super) fn transfer_max_bytes(&self) -> u32 {
        self.transfer_max_bytes
    }

    /// Whether we said that we can expand data.
    pub(super) fn takes_compressed(&self) -> bool {
        self.ours.get(DeviceOption::Compression.number()).is_some()
    }

    /// From now on we want this; true when the client must be told.
    pub(super) fn propose(&mut self, ours: Options, now: Instant) -> bool {
        let latest = self.asking.as_ref().map_or(&self.ours, |(asked, _)| asked);
        if *latest == ours {
            return false;
        }
        self.changes = self.changes.wrapping_add(1);
        self.asking = Some((ours, now.max(self.quiet_until)));
        true
    }

    /// When [`Terms::poll_request`] has something to say.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.asking.as_ref().map(|(_, at)| *at)
    }

    /// What is to be told the client, when it is time.
    pub(super) fn poll_request(&mut self, now: Instant) -> Option<NewOptions> {
        let (options, at) = self.asking.as_mut().filter(|(_, at)| *at <= now)?;
        *at = now + AGAIN;
        self.quiet_until = *at;
        self.unanswered = self.unanswered.saturating_add(1);
        Some(NewOptions { change: self.changes, options: options.clone() })
    }

    /// The client has answered; `None` when it is an answer to an earlier question.
    ///
    /// # Errors
    /// [`Offence::Violation`] for an answer to no question, [`Offence::Conflict`] for one with which there is no agreement.
    pub(super) fn take_answer(&mut self, answer: NewOptions) -> Result<Option<&Agreed>, Offence> {
        self.unanswered = self.unanswered.checked_sub(1).ok_or(Offence::Violation)?;
        if answer.change > self.changes {
            return Err(Offence::Violation);
        }
        let Some((ours, _)) = self.asking.take_if(|_| answer.change == self.changes) else { return Ok(None) };
        let agreed = Agreed::new(&ours, &answer.options).map_err(|_| Offence::Conflict)?;
        self.ours = ours;
        self.agreed = agreed.after(&self.agreed);
        Ok(Some(&self.agreed))
    }
}
