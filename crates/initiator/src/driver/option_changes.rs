//! Requested option changes, and how their result is reported to volumes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_core::{Instant, Protection};
use sanwire_io::Waker;

use super::{ConnectionState, Driver, Served};
use crate::session::{DesiredOptions, ServerInfo, Session, TooMany, Wish};

/// A way to change a HyperSCSI connection while it works, on whatever thread that is. Over iSCSI it changes nothing.
#[derive(Debug)]
pub struct OptionChanges {
    waker: Waker,
    is_full: AtomicBool,
    wish: Mutex<Option<Wish>>,
}

impl OptionChanges {
    pub(super) fn new(waker: Waker) -> Self {
        OptionChanges { waker, is_full: AtomicBool::new(false), wish: Mutex::default() }
    }

    /// Wants these options from now on, for this connection and those that follow it. The server agrees, or keeps what it enforces: the
    /// volumes tell what holds. What it refuses is logged, and changes nothing.
    ///
    /// # Errors
    /// [`TooMany`] options of others.
    pub fn wish(&self, wishes: DesiredOptions, protection_min: Protection) -> Result<(), TooMany> {
        wishes.options(protection_min)?;
        *self.lock() = Some(Wish { wishes, protection_min });
        self.is_full.store(true, Ordering::Release);
        self.waker.wake();
        Ok(())
    }

    fn take(&self) -> Option<Wish> {
        if self.is_full.swap(false, Ordering::Acquire) { self.lock().take() } else { None }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Wish>> {
        // It is replaced as a whole.
        self.wish.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver {
    pub(crate) fn wishes(&self) -> Arc<OptionChanges> {
        Arc::clone(&self.wishes)
    }

    pub(super) fn take_wish(&mut self, now: Instant) {
        if let Some(wish) = self.wishes.take() {
            self.session.wish(wish, now);
        }
    }

    /// What was agreed on with the server has changed.
    pub(super) fn changed(&mut self, server: ServerInfo) {
        for served in self.volumes.iter().flatten() {
            served.tell(&server, &*self.session);
        }
        if let ConnectionState::Up(known) = &mut self.link {
            *known = server;
        }
    }
}

impl Served {
    /// Tells the volume's handles what holds with its server.
    pub(super) fn tell(&self, server: &ServerInfo, session: &dyn Session) {
        let block_bytes = self.block_bytes.max(1);
        let mut info = self.info.get();
        let whole = |bytes: u32| self.limits.transfer_max_bytes.min(bytes) / block_bytes * block_bytes;
        info.transfer_max_bytes = whole(server.transfer_max_bytes);
        info.transfer_limit_bytes = info.transfer_limit_bytes.max(whole(server.transfer_limit_bytes));
        info.range_max_bytes = self.limits.range_max_bytes;
        info.rate_cap_bytes_per_second = server.rate_cap_bytes_per_second;
        info.is_compressed = session.is_compressed(self.lun).unwrap_or(info.is_compressed);
        info.protection = session.protection(self.lun).or(info.protection);
        self.info.set(info);
    }
}
