//! The end of a shard: what is under way is finished, and clients are told.

use std::io;
use std::time::Duration;

use sanwire_core::Instant;

use super::Shard;
use super::system::System;

/// How long a stopping shard waits for its commands, for acknowledgements, and for initiators to leave.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A stopping shard that never comes to rest tells its clients after this.
const STOP_REST: Duration = Duration::from_secs(2);

/// How long it sleeps at the most.
const STOP_SLEEP: Duration = Duration::from_millis(50);

/// How far the end of a shard has come.
pub(super) struct Stopping {
    tell_at: Instant,
    give_up_at: Instant,
    is_told: bool,
}

/// What follows.
pub(super) enum Next {
    /// Another turn, at once.
    Turn,
    /// Another turn when something happens, at the latest then.
    Sleep(Instant),
    /// Nothing: the shard may go.
    End,
}

impl Stopping {
    pub(super) fn new(now: Instant) -> Self {
        Stopping { tell_at: now + STOP_REST, give_up_at: now + STOP_TIMEOUT, is_told: false }
    }
}

impl<S: System> Shard<S> {
    /// A turn of a shard that is to end.
    pub(super) fn stopping_turn(&mut self, stopping: &mut Stopping, now: Instant) -> io::Result<Next> {
        let is_busy = self.turn(now)?;
        let Stopping { tell_at, give_up_at, is_told } = stopping;
        let is_drained = || self.streams.is_empty() && self.fronts.iter().all(|front| front.is_drained());
        if now >= *give_up_at || (*is_told && !is_busy && is_drained()) {
            return Ok(Next::End);
        }
        if !*is_told && (self.engine.is_idle() || now >= *tell_at) {
            self.fronts.iter_mut().for_each(|front| front.shut_down(now));
            *is_told = true;
            return Ok(Next::Turn);
        }
        Ok(if is_busy { Next::Turn } else { Next::Sleep((*give_up_at).min(now + STOP_SLEEP)) })
    }
}
