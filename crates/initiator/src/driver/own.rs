//! Commands of the driver's own: to learn what a server has, and whether it still has it after a restart.

use sanwire_buffer::Frame;
use sanwire_core::Lun;
use sanwire_hyperscsi::wire::command::Ask;
use sanwire_hyperscsi::{Failure, Order};
use sanwire_scsi::Cdb;

use super::{Driver, Link, OwnAnswer, Waiting};
use crate::endpoint::ConnectError;
use crate::inventory;
use crate::volume::VolumeError;

impl Driver {
    /// Gives a command of the driver's own and waits for its answer, serving everything else meanwhile.
    pub(crate) fn execute(&mut self, lun: Lun, cdb: Cdb, data_in_bytes: usize) -> Result<OwnAnswer, Failure> {
        let data_in = (data_in_bytes > 0).then(|| Frame::from(vec![0; data_in_bytes]));
        let mut order = Order { lun, ask: Ask::Command(cdb), data_out: None, data_in };
        let id = loop {
            match self.protocol.order(order, self.clock.now()) {
                Ok(id) => break id,
                Err(back) => order = back,
            }
            if let Link::Down(failure) = self.link {
                return Err(failure);
            }
            self.turn_or_sleep();
        };
        self.waiting.insert(id, Waiting::Own);
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return answer;
            }
            self.turn_or_sleep();
        }
    }

    /// Lets held commands go only to volumes that are still what they were: a server may have come back with others.
    pub(super) fn verify(&mut self) {
        self.must_verify = false;
        self.is_verifying = true;
        let served = self.volumes.iter().enumerate();
        let known: Vec<_> = served.filter_map(|(index, s)| s.as_ref().map(|s| (index, s.lun, s.uuid))).collect();
        for (index, lun, uuid) in known {
            match inventory::uuid(self, lun) {
                Ok(now) if now == uuid => {}
                // The connection is gone again: the next one brings the next verification.
                Err(ConnectError::Handshake { .. }) => {
                    self.is_verifying = false;
                    return;
                }
                _ => self.drop_replaced(index),
            }
        }
        self.is_verifying = false;
        if !self.must_verify {
            self.protocol.release();
        }
    }

    fn drop_replaced(&mut self, index: usize) {
        let Some(served) = self.volumes[index].take() else { return };
        let name = served.info.get().name;
        tracing::error!("volume {name} is not what it was before server {} was restarted", self.server_name);
        let what = format!("volume {name} was replaced when the server was restarted: check it, and open it again");
        served.queue.close(VolumeError::Protocol { what: what.into() });
        self.protocol.abandon(served.lun, Failure::InDoubt);
    }
}
