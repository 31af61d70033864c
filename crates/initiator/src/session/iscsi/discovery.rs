//! Asking a host for its targets.

use sanwire_core::Instant;
use sanwire_io::Waker;
use sanwire_iscsi::{ClientConfig, ClientEvent, DiscoveredTarget};

use super::{Iscsi, Way};
use crate::session::{Failure, Session};

/// A session for asking which targets there are.
pub(crate) struct IscsiDiscovery(Iscsi);

impl IscsiDiscovery {
    pub(crate) fn new(config: ClientConfig, way: Way, now: Instant) -> Self {
        IscsiDiscovery(Iscsi::new(config, way, None, now))
    }

    /// Does what there is to do, or sleeps; gives the end when there is one.
    pub(crate) fn turn(&mut self, waker: &Waker) -> Option<Result<Vec<DiscoveredTarget>, Failure>> {
        let session = &mut self.0;
        let now = session.now();
        let mut done = session.receive(now);
        session.handle_timeout(now);
        while let Some(event) = session.protocol.poll_event() {
            done += 1;
            match event {
                ClientEvent::Connected { .. } => session.protocol.discover(now),
                ClientEvent::Targets(targets) => {
                    session.protocol.disconnect(now);
                    session.transmit(now);
                    session.part(waker);
                    return Some(Ok(targets));
                }
                ClientEvent::OutOfPatience(failure) | ClientEvent::GivenUp(failure) => {
                    return Some(Err(failure.into()));
                }
                _ => {}
            }
        }
        done += session.transmit(now);
        if done == 0
            && let Err(error) = session.wait(waker, session.poll_timeout())
        {
            return Some(Err(Failure::NoAnswer(format!("cannot wait for the target: {error}"))));
        }
        None
    }
}
