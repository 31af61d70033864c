//! An initiator's end of a connection of iSER: it has RDMA, and keeps no rule above it.

use arbitrary::{Result, Unstructured};
use sanwire_iscsi::Datamover;
use sanwire_iser::wire::Window;
use sanwire_iwarp::{Connection, Memory, Registration, Stag};

use crate::steps::CANARY;

/// Times in a row that something moves, at the most.
pub const ROUNDS_MAX: usize = 10_000;

/// Buffers of an initiator, and how long they are.
const RECEIVES: (usize, usize) = (100, 9000);

/// The initiator's end of a connection.
pub struct Line {
    pub rdma: Connection,
    /// Memory that it has opened.
    pub opened: Vec<Stag>,
    /// What the target does not take yet.
    pub unsent: Vec<u8>,
    /// It reads nothing.
    pub is_deaf: bool,
}

impl Line {
    /// What it has to send, behind what it could not.
    pub fn gather(&mut self) {
        let packets = std::iter::from_fn(|| self.rdma.poll_transmit());
        self.unsent.extend(packets.flat_map(|packet| packet.to_vec()));
        self.forget_events();
    }

    pub fn take(&mut self, bytes: &[u8]) {
        self.rdma.take(bytes);
        self.forget_events();
    }

    pub fn forget_events(&mut self) {
        while self.rdma.poll_event().is_some() {}
        self.rdma.expect_messages(RECEIVES.0, RECEIVES.1);
    }

    /// A key that it has given, or none.
    pub fn key(&self, u: &mut Unstructured<'_>) -> Result<Option<Window>> {
        Ok(match u.int_in_range(0..=9u8)? {
            0 => Some(Window { stag: Stag(u.arbitrary()?), offset: u.arbitrary()? }),
            1 | 2 => None,
            _ if self.opened.is_empty() => None,
            3 => Some(Window { stag: *u.choose(&self.opened)?, offset: u.arbitrary()? }),
            _ => Some(Window { stag: *u.choose(&self.opened)?, offset: 0 }),
        })
    }

    /// Opens memory, or closes some.
    pub fn open_or_close(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if !self.opened.is_empty() && u.ratio(1, 3)? {
            let stag = self.opened.swap_remove(u.choose_index(self.opened.len())?);
            if let Some(Memory::Frame(frame)) = self.rdma.deregister(stag) {
                assert!(!frame.contains(&CANARY), "memory of others was written to an initiator");
            }
            return Ok(());
        }
        let length = 512 * u.int_in_range(0..=16usize)?;
        let mut registration = if u.arbitrary()? {
            Registration::of_frame(vec![0; length].into())
        } else {
            Registration::of_slices(vec![7; length].into())
        };
        registration.rights.remote_invalidate = u.ratio(7, 8)?;
        self.opened.extend(self.rdma.register(registration).ok());
        Ok(())
    }
}

/// Both ends agree on RDMA.
pub fn set_up(mover: &mut dyn Datamover, line: &mut Line) {
    for _ in 0..ROUNDS_MAX {
        line.gather();
        let there = std::mem::take(&mut line.unsent);
        mover.take(&there);
        let back: Vec<u8> = std::iter::from_fn(|| mover.pop()).flat_map(|packet| packet.to_vec()).collect();
        line.take(&back);
        if there.is_empty() && back.is_empty() {
            return;
        }
    }
    panic!("it is never set up");
}
