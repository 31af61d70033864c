//! An initiator's end of a connection of iSER, and the memory that it has opened.

use arbitrary::{Result, Unstructured};
use sanwire_iser::wire::Window;
use sanwire_iwarp::{Memory, Registration, Stag};

use crate::iser_peer::Peer;
use crate::steps::CANARY;

/// The initiator's end of a connection.
pub struct Line {
    /// What it does.
    pub peer: Peer,
    /// Memory that it has opened.
    pub opened: Vec<Window>,
}

impl Line {
    /// A key that it has given, or none.
    pub fn key(&self, u: &mut Unstructured<'_>) -> Result<Option<Window>> {
        Ok(match u.int_in_range(0..=9u8)? {
            0 => Some(Window { stag: Stag(u.arbitrary()?), offset: u.arbitrary()? }),
            1 | 2 => None,
            _ if self.opened.is_empty() => None,
            3 => Some(Window { offset: u.arbitrary()?, ..*u.choose(&self.opened)? }),
            _ => Some(*u.choose(&self.opened)?),
        })
    }

    /// Opens memory, or closes some.
    pub fn open_or_close(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if !self.opened.is_empty() && u.ratio(1, 3)? {
            let window = self.opened.swap_remove(u.choose_index(self.opened.len())?);
            if let Some(Memory::Frame(frame)) = self.peer.close(window.stag) {
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
        self.opened.extend(self.peer.open(registration));
        Ok(())
    }
}
