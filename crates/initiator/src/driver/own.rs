//! Commands of the driver's own: to learn what a server has, and whether it still has it after a restart.

use std::time::Duration;

use sanwire_buffer::{Frame, Slice};
use sanwire_core::Lun;
use sanwire_scsi::Cdb;

use super::{Driver, Link, OwnAnswer, Waiting};
use crate::endpoint::ConnectError;
use crate::inventory::{self, Contents};
use crate::session::{Failure, Order, OrderId};
use crate::volume::VolumeError;

impl Driver {
    /// Does something with commands of the driver's own, and has no more patience for their answers than that.
    pub(crate) fn within<T>(&mut self, patience: Duration, work: impl FnOnce(&mut Self) -> T) -> T {
        self.own_until = Some(self.clock.now() + patience);
        let result = work(self);
        self.own_until = None;
        result
    }

    fn is_too_late(&self) -> bool {
        self.own_until.is_some_and(|end| end <= self.clock.now())
    }

    /// Gives a command of the driver's own and waits for its answer, serving everything else meanwhile.
    pub(crate) fn execute(&mut self, lun: Lun, cdb: Cdb, data_in_bytes: usize) -> Result<OwnAnswer, Failure> {
        let data_in = (data_in_bytes > 0).then(|| Frame::from(vec![0; data_in_bytes]));
        let mut order = Order { lun, cdb, data_out: None, data_in };
        let id = loop {
            if let Link::Down(failure) = &self.link {
                return Err(failure.clone());
            }
            if self.is_too_late() {
                return Err(too_late());
            }
            match self.session.order(order, self.clock.now()) {
                Ok(id) => break id,
                Err(back) => order = back,
            }
            // Held commands take all places, and they stay until the verification is over.
            if self.is_verifying && matches!(self.link, Link::Up(_)) {
                return Err(Failure::Full);
            }
            self.turn_or_sleep();
        };
        self.wait_for(id)
    }

    /// Asks to manage the server, in the words that it knows, and waits for its answer; `None` when the wire has no such
    /// thing.
    pub(crate) fn administer(&mut self, request: &[u8], room_bytes: usize) -> Option<Result<Vec<u8>, Failure>> {
        let (mut request, mut room) = (Slice::from(request.to_vec()), Frame::from(vec![0; room_bytes]));
        let id = loop {
            if let Link::Down(failure) = &self.link {
                return Some(Err(failure.clone()));
            }
            match self.session.administer(request, room, self.clock.now())? {
                Ok(id) => break id,
                Err(back) => (request, room) = back,
            }
            self.turn_or_sleep();
        };
        Some(self.wait_for(id).map(|answer| answer.data))
    }

    fn wait_for(&mut self, id: OrderId) -> Result<OwnAnswer, Failure> {
        self.waiting.insert(id, Waiting::Own);
        let connections = self.connections;
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return answer;
            }
            if self.is_verifying && self.connections != connections {
                // On the new connection it is held until the verification is over, that is for ever.
                self.waiting.remove(&id);
                return Err(Failure::Closed);
            }
            if self.is_too_late() {
                self.waiting.remove(&id);
                return Err(too_late());
            }
            self.turn_or_sleep();
        }
    }

    /// Lets held commands go only to volumes that are still what they were: a server may have come back with others.
    pub(super) fn verify(&mut self) {
        self.must_verify = false;
        self.is_verifying = true;
        let served = self.volumes.iter().enumerate();
        let known: Vec<_> = served.filter_map(|(index, s)| s.as_ref().map(|s| (index, s.lun))).collect();
        for &(index, lun) in &known {
            match inventory::contents(self, lun) {
                Ok(contents) => self.compare(index, &contents),
                Err(ConnectError::Handshake { failure: Failure::Full, .. }) => {
                    known.iter().for_each(|&(_, lun)| self.session.abandon(lun));
                    self.must_verify = true;
                    self.is_verifying = false;
                    return;
                }
                // The connection is gone again: the next one brings the next verification.
                Err(ConnectError::Handshake { .. }) => {
                    self.must_verify |= self.is_too_late();
                    self.is_verifying = false;
                    return;
                }
                Err(_) => self.drop_replaced(index),
            }
        }
        self.is_verifying = false;
        if !self.must_verify {
            self.session.release();
        }
    }

    fn compare(&mut self, index: usize, contents: &Contents) {
        let Some(served) = &self.volumes[index] else { return };
        if contents.mark != served.mark || contents.block_bytes != served.block_bytes {
            return self.drop_replaced(index);
        }
        let mut info = served.info.get();
        if info.size_bytes != contents.size_bytes {
            tracing::warn!("volume {} has {} bytes now, {} before", info.name, contents.size_bytes, info.size_bytes);
        }
        info.size_bytes = contents.size_bytes;
        served.info.set(info);
        if let Link::Up(server) = &self.link {
            served.tell(server, &*self.session);
        }
    }

    fn drop_replaced(&mut self, index: usize) {
        let Some(served) = self.volumes[index].take() else { return };
        let name = served.info.get().name;
        tracing::error!("volume {name} is not what it was before server {} was restarted", self.server_name);
        let what = format!("volume {name} was replaced when the server was restarted: check it, and open it again");
        served.queue.close(VolumeError::Protocol { what: what.into() });
        self.session.abandon(served.lun);
        self.stalled.retain(|stalled| stalled.again.lun != served.lun);
    }
}

fn too_late() -> Failure {
    Failure::NoAnswer("it is connected, but does not answer what it is asked".into())
}
