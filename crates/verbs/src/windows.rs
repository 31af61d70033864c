//! Memory that the other end reaches.

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use sanwire_buffer::Region;
use sanwire_iwarp::{Memory, Refusal, Refused, Registration, Rights, Stag};

use crate::domain::{Domain, Members};
use crate::error::Error;
use crate::ffi::{ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE, MemoryRegion, OPCODE_BIND_WINDOW, SendRequest, WindowOver};
use crate::memory::{Access, Registered, keep_frame_out, keep_out};
use crate::memory_window::MemoryWindow;

/// A window that is open.
struct Open {
    // What opens it goes before its memory.
    way: Way,
    copy: Option<Vec<u8>>,
    memory: Memory,
}

/// By what it is open.
enum Way {
    /// It is registered by itself, and for one purpose.
    Registered(Registered),
    /// A window of the adapter's.
    Bound(Bound),
}

/// A window of the adapter's over memory that is registered.
struct Bound {
    // It goes before what it is bound to.
    window: MemoryWindow,
    over: WindowOver,
    /// The other end has ended its key.
    is_ended: bool,
    /// What is registered for it alone, since it lies in no region that is.
    registered: Option<Registered>,
}

// SAFETY: what the pointer in it is of lives as long as the domain, or as `registered`; the library may be called from any thread.
unsafe impl Send for Bound {}
// SAFETY: what is shared is only read.
unsafe impl Sync for Bound {}

/// The windows of one connection: each has as many bytes as are wanted, and is for one purpose. So a key opens nothing else, and nothing
/// at all any more once its window is closed. Nobody else can use it: either the domain is the connection's own, or the adapter has bound
/// the window to its queue pair.
///
/// An adapter binds a window in its turn, among what is sent: the binding waits here for the next order ([`Windows::bindings`]), which
/// may tell of the key. The other end ends the key with its answer, as a rule. Where it does not, the window is given back to the
/// adapter, which ends it at once: a request to end it (`IBV_WR_LOCAL_INV`) would have to be waited for, and memory with it.
#[derive(Default)]
pub(crate) struct Windows {
    open: FxHashMap<Stag, Open>,
    /// Those that are to be bound, first those that were opened first.
    unbound: Vec<Stag>,
    /// Windows of the adapter's that open nothing.
    free: Vec<MemoryWindow>,
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
        let whole = domain.registered(region_of(&memory));
        let address = place(&mut memory, &mut copy, range.clone());
        let opened = if domain.members == Members::ByWindows {
            // SAFETY: as below; what is registered of a region stays as long as the domain.
            unsafe { self.bind(address, range.len(), rights, whole, domain) }
        } else {
            let access =
                Access { remote_read: rights.remote_read, remote_write: rights.remote_write, ..Access::default() };
            // SAFETY: memory and copy are kept here as long as they are registered. Nobody looks at a frame meanwhile; what is shared is
            // only read, by everybody.
            unsafe { Registered::new(domain, address, range.len(), access) }
                .map(|registered| (Stag(registered.remote_key()), Way::Registered(registered)))
        };
        match opened {
            Ok((stag, way)) => {
                self.open.insert(stag, Open { way, copy, memory });
                self.registered_ever += 1;
                Ok((stag, address.addr() as u64))
            }
            Err(error) => {
                self.failure = Some(error);
                refused(Refusal::Full, memory)
            }
        }
    }

    /// Has one of the adapter's windows bound to so many bytes, with the next order.
    ///
    /// # Safety
    /// As for [`Registered::new`]; and `whole` is what is registered of the region in which they lie.
    unsafe fn bind(
        &mut self,
        address: *mut u8,
        length: usize,
        rights: Rights,
        whole: Option<*mut MemoryRegion>,
        domain: &Arc<Domain>,
    ) -> Result<(Stag, Way), Error> {
        let access = Access { local_write: rights.remote_write, windows: true, ..Access::default() };
        let (region, registered) = match whole {
            Some(whole) => (whole, None),
            None => {
                // SAFETY: the caller promises it.
                let registered = unsafe { Registered::new(domain, address, length, access)? };
                (registered.pointer(), Some(registered))
            }
        };
        let window = match self.free.pop() {
            Some(window) => window,
            None => MemoryWindow::new(domain)?,
        };
        let access = if rights.remote_read { ACCESS_REMOTE_READ } else { 0 }
            | if rights.remote_write { ACCESS_REMOTE_WRITE } else { 0 };
        let stag = Stag(window.next_key());
        let over = WindowOver { region, address: address.addr() as u64, length: length as u64, access };
        self.unbound.push(stag);
        Ok((stag, Way::Bound(Bound { window, over, is_ended: false, registered })))
    }

    /// Those that the adapter is to bind, which is not told of it.
    pub(crate) fn unbound(&self) -> usize {
        self.unbound.len()
    }

    /// What the adapter is to be asked for before the next order.
    pub(crate) fn bindings(&self) -> Vec<SendRequest> {
        let bound = self.unbound.iter().filter_map(|stag| Some((stag, self.open.get(stag)?)));
        let requests = bound.filter_map(|(stag, open)| match &open.way {
            Way::Registered(_) => None,
            Way::Bound(bound) => {
                let mut request = SendRequest::new(0, OPCODE_BIND_WINDOW);
                (request.window, request.window_key) = (bound.window.pointer(), stag.0);
                request.window_over = bound.over;
                Some(request)
            }
        });
        requests.collect()
    }

    /// The adapter was asked for them.
    pub(crate) fn note_bound(&mut self) {
        for stag in self.unbound.drain(..) {
            if let Some(Open { way: Way::Bound(bound), .. }) = self.open.get_mut(&stag) {
                bound.window.note_bound();
            }
        }
    }

    /// The other end has ended a key.
    pub(crate) fn note_ended(&mut self, stag: Stag) {
        if let Some(Open { way: Way::Bound(bound), .. }) = self.open.get_mut(&stag) {
            bound.is_ended = true;
        }
    }

    /// Closes one: nothing reaches the memory any more that is given.
    pub(crate) fn close(&mut self, stag: Stag) -> Option<Memory> {
        let Open { way, copy, memory } = self.open.remove(&stag)?;
        let ended = match way {
            Way::Registered(registered) => registered.end(),
            Way::Bound(bound) => self.end(stag, bound),
        };
        Some(match ended {
            Ok(()) => memory,
            Err(error) => kept_out(memory, copy, &error),
        })
    }

    /// # Errors
    /// The adapter's: it may still reach the memory.
    fn end(&mut self, stag: Stag, Bound { window, is_ended, registered, .. }: Bound) -> Result<(), Error> {
        let at = self.unbound.iter().position(|unbound| *unbound == stag);
        if is_ended || at.map(|at| self.unbound.remove(at)).is_some() {
            self.free.push(window);
        } else {
            window.end()?;
        }
        // Without a window, or with one that is ended, nobody but this end reaches what is registered.
        drop(registered);
        Ok(())
    }
}

/// The region in which all of it lies that a key opens, if it is one.
fn region_of(memory: &Memory) -> Option<&Region> {
    match memory {
        Memory::Frame(frame) => frame.region(),
        Memory::Slices(slices) => match slices.pieces() {
            [piece] => piece.region(),
            _ => None,
        },
    }
}

/// Where the part of it begins that is opened. Of several pieces a copy is made: a key opens one run of bytes.
fn place(memory: &mut Memory, copy: &mut Option<Vec<u8>>, range: Range<usize>) -> *mut u8 {
    match memory {
        Memory::Frame(frame) => frame[range].as_mut_ptr(),
        Memory::Slices(slices) => match slices.pieces() {
            [piece] => piece[range].as_ptr().cast_mut(),
            _ => copy.insert(slices.slice(range).to_vec()).as_mut_ptr(),
        },
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
