//! Portals whose adapters are gone: nothing listens there, until it can again.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use sanwire_core::Instant;
use sanwire_io::Interest;
use sanwire_rdma::Rdma;

use super::LoginListener;
use crate::channel::Listener;

/// Between two tries to listen again.
pub(super) const PAUSE: Duration = Duration::from_secs(2);

/// All of them.
#[derive(Default)]
pub(super) struct Absences {
    absences: Vec<Absence>,
    /// When it is tried again; only while there are some.
    tries_at: Option<Instant>,
}

/// One portal.
struct Absence {
    /// Its place among the portals.
    portal: usize,
    rdma: Rdma,
    address: SocketAddr,
    /// What else than the absence of its adapter was in the way last, which is told once.
    told: String,
}

impl Absences {
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.tries_at
    }
}

impl LoginListener {
    /// The adapter of a portal is gone: nothing comes there any more, whoever waits. The others go on.
    pub(super) fn leave_portal(&mut self, portal: usize, why: &io::Error, now: Instant) {
        // The kernel keeps the port for who listens, also without an adapter: so it is closed.
        let left = self.parts.portals.get_mut(portal).and_then(|portal| portal.listener.take());
        let Some(Listener::Rdma { port, rdma }) = left else { return };
        tracing::error!("{why}");
        if let Ok(address) = port.local_address() {
            self.parts.accounts.note_portal(address, false);
            self.absences.absences.push(Absence { portal, rdma, address, told: String::new() });
            self.absences.tries_at.get_or_insert(now + PAUSE);
        }
    }

    /// Listens again where that can be, if it is time to try.
    pub(super) fn return_to_portals(&mut self, now: Instant) {
        let Absences { absences, tries_at } = &mut self.absences;
        if tries_at.is_none_or(|at| at > now) {
            return;
        }
        absences.retain_mut(|absence| {
            let listener = absence.listen().and_then(|listener| {
                let added = self.poller.add_stream(&listener, absence.portal as u64, Interest::READABLE);
                added.map(|()| listener).map_err(|error| {
                    io::Error::other(format!("{} cannot be watched for who connects: {error}", absence.address))
                })
            });
            let listener = match listener {
                Ok(listener) => listener,
                Err(error) => {
                    absence.tell(&error);
                    return true;
                }
            };
            if let Some(portal) = self.parts.portals.get_mut(absence.portal) {
                // Who reads no more than warnings sees the end of what it has seen begin.
                tracing::warn!("the RDMA adapter of {} is back: connections are taken there again", absence.address);
                portal.listener = Some(listener);
                self.parts.accounts.note_portal(absence.address, true);
            }
            false
        });
        *tries_at = (!absences.is_empty()).then_some(now + PAUSE);
    }
}

impl Absence {
    fn listen(&self) -> io::Result<Listener> {
        let port = self.rdma.listen(self.address)?;
        Ok(Listener::Rdma { port, rdma: self.rdma.clone() })
    }

    /// Says what is in the way, unless that is only that the adapter is not there.
    fn tell(&mut self, error: &io::Error) {
        let said = error.to_string();
        if error.kind() != io::ErrorKind::AddrNotAvailable && said != self.told {
            tracing::warn!("{said}; it is tried again");
            self.told = said;
        }
    }
}
