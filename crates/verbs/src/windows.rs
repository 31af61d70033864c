//! Memory that the other end reaches.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use sanwire_iwarp::{Memory, Refusal, Refused, Registration, Stag};

use crate::domain::Domain;
use crate::error::Error;
use crate::memory::{Access, Registered, keep_frame_out, keep_out};

struct Window {
    // What is registered goes before its memory.
    registered: Registered,
    copy: Option<Vec<u8>>,
    memory: Memory,
}

/// The windows of one connection. Each is registered by itself, as many bytes as it has, and for one purpose: so a key opens nothing else,
/// and nothing at all any more once its window is closed. The keys belong to the connection's own domain: nobody else can use them.
#[derive(Default)]
pub(crate) struct Windows {
    open: FxHashMap<Stag, Window>,
    registered_ever: u64,
    /// Why one could not be opened, the last time that one could not.
    failure: Option<Error>,
}

impl Windows {
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn registered_ever(&self) -> u64 {
        self.registered_ever
    }

    /// Why one could not be opened, if that has happened.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// Opens one. Gives its key, and the address of its first byte, by which the other end counts.
    ///
    /// # Errors
    /// The memory.
    pub(crate) fn open(
        &mut self,
        registration: Registration,
        domain: &Arc<Domain>,
    ) -> Result<(Stag, u64), Refused<Registration>> {
        let Registration { memory, range, base, rights } = registration;
        let refused = |refusal, memory| {
            Err(Refused { refusal, given: Registration { memory, range: range.clone(), base, rights } })
        };
        let fits = range.start < range.end && range.end <= memory.length_bytes();
        if !fits || (rights.remote_write && matches!(memory, Memory::Slices(_))) {
            return refused(Refusal::Range, memory);
        }
        let mut memory = memory;
        let mut copy = None;
        let address = match &mut memory {
            Memory::Frame(frame) => frame[range.clone()].as_mut_ptr(),
            Memory::Slices(slices) => match slices.pieces() {
                [piece] => piece[range.clone()].as_ptr().cast_mut(),
                // A key opens one run of bytes.
                _ => copy.insert(slices.slice(range.clone()).to_vec()).as_mut_ptr(),
            },
        };
        let access = Access { local_write: false, remote_read: rights.remote_read, remote_write: rights.remote_write };
        // SAFETY: memory and copy are kept here as long as they are registered. Nobody looks at a frame meanwhile; what is shared is only
        // read, by everybody.
        let registered = match unsafe { Registered::new(domain, address, range.len(), access) } {
            Ok(registered) => registered,
            Err(error) => {
                self.failure = Some(error);
                return refused(Refusal::Full, memory);
            }
        };
        let (stag, address) = (Stag(registered.remote_key()), registered.address());
        self.open.insert(stag, Window { registered, copy, memory });
        self.registered_ever += 1;
        Ok((stag, address))
    }

    /// Closes one: nothing reaches the memory any more that is given.
    pub(crate) fn close(&mut self, stag: Stag) -> Option<Memory> {
        let Window { registered, copy, memory } = self.open.remove(&stag)?;
        Some(match registered.end() {
            Ok(()) => memory,
            Err(error) => kept_out(memory, copy, &error),
        })
    }
}

/// What is given for memory that may still be reached: that stays as it is, whoever has had it.
fn kept_out(memory: Memory, copy: Option<Vec<u8>>, reason: &Error) -> Memory {
    match memory {
        Memory::Frame(frame) => Memory::Frame(keep_frame_out(frame, reason)),
        // It is read there, and nobody writes to it: whoever else has a share may go on with that.
        Memory::Slices(slices) => {
            let length_bytes = slices.len();
            keep_out((slices.clone(), copy), length_bytes, reason);
            Memory::Slices(slices)
        }
    }
}

#[cfg(test)]
mod tests {
    use sanwire_buffer::{Region, Slices};

    use super::*;

    #[test]
    fn memory_of_which_an_adapter_does_not_let_go_goes_home_no_more() {
        let region = Region::new(64 << 10).unwrap();
        let free_bytes = region.free_bytes();
        let reason = Error::number("memory stays registered", libc::EBUSY);
        let mut frame = region.frame(8192).unwrap();
        frame.fill(7);
        let Memory::Slices(slices) = kept_out(Memory::Slices(frame.freeze().into()), None, &reason) else { panic!() };
        assert!(Slices::to_vec(&slices).iter().all(|byte| *byte == 7));
        drop(slices);
        let kept = region.free_bytes();
        assert!(kept <= free_bytes - 8192, "{kept}");
        let Memory::Frame(frame) = kept_out(Memory::Frame(region.frame(8192).unwrap()), None, &reason) else {
            panic!()
        };
        drop(frame);
        assert!(region.free_bytes() <= kept - 8192);
    }
}
