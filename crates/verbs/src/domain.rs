//! Protection domains: what belongs to one is reached by its own connections, and by no others.

use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use sanwire_buffer::Region;

use crate::adapter::Capabilities;
use crate::error::Error;
use crate::ffi::{self, ACCESS_LOCAL_WRITE, ACCESS_WINDOWS, Context, MemoryRegion, ProtectionDomain};
use crate::shared_receives::SharedReceives;

/// Regions that one domain has registered as a whole, at the most.
const REGIONS_MAX: usize = 16;

/// What connections a domain has. The keys of many adapters are easy to guess: so they share one only where a key is good for one of them
/// alone, or none is given to the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Members {
    /// One: the other end gets the keys of what is registered.
    One,
    /// All that were connected to: no other end gets a key.
    Accepted,
    /// All that have connected: other ends get the keys of windows.
    ByWindows,
}

/// A protection domain.
pub(crate) struct Domain {
    pub(crate) context: *mut Context,
    pub(crate) pointer: *mut ProtectionDomain,
    pub(crate) capabilities: Capabilities,
    pub(crate) members: Members,
    /// Regions that are registered as a whole, where it has more than one member.
    regions: RwLock<Vec<Kept>>,
}

/// A region that is registered for this end alone, if that could be.
struct Kept {
    // It stays mapped as long.
    region: Region,
    registered: *mut MemoryRegion,
}

// SAFETY: the library may be called from any thread.
unsafe impl Send for Domain {}
// SAFETY: as above, also by several at once.
unsafe impl Sync for Domain {}

impl Domain {
    /// # Safety
    /// `context` is that of an adapter that stays open as long as the domain. librdmacm closes one that was unplugged behind the last
    /// identifier that has led to it: so whoever holds the domain lets go of it before an identifier of the same adapter.
    ///
    /// # Errors
    /// The adapter's.
    unsafe fn new(context: *mut Context, capabilities: Capabilities, members: Members) -> Result<Arc<Self>, Error> {
        let api = ffi::load()?;
        // SAFETY: the caller promises that the context is one.
        let pointer = unsafe { (api.ibv_alloc_pd)(context) };
        if pointer.is_null() {
            return Err(Error::last("an RDMA adapter has no protection domain left"));
        }
        Ok(Arc::new(Domain { context, pointer, capabilities, members, regions: RwLock::default() }))
    }

    /// By which key this end reaches all of a region, if it does.
    pub(crate) fn key_of(&self, region: Option<&Region>) -> Option<u32> {
        // SAFETY: what is registered stays as long as the domain.
        self.registered(region).map(|registered| unsafe { (*registered).local_key })
    }

    /// What is registered of a region, if that is all of it. The first time it is registered, which takes some time, and all of it is
    /// locked from then on.
    pub(crate) fn registered(&self, region: Option<&Region>) -> Option<*mut MemoryRegion> {
        let access = match self.members {
            Members::One => return None,
            Members::Accepted => ACCESS_LOCAL_WRITE,
            Members::ByWindows => ACCESS_LOCAL_WRITE | ACCESS_WINDOWS,
        };
        let region = region?;
        let known = |kept: &[Kept]| kept.iter().find(|kept| kept.region.is_same(region)).map(Kept::whole);
        if let Some(whole) = known(&self.regions.read().unwrap_or_else(PoisonError::into_inner)) {
            return whole;
        }
        let mut all = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(whole) = known(&all) {
            return whole;
        }
        if all.len() >= REGIONS_MAX {
            return None;
        }
        let (api, length) = (ffi::load().ok()?, region.length_bytes());
        // SAFETY: the domain lives, and the region stays mapped as long as it. The other end gets no key of all of it; what the adapter does
        // there for this end, and what windows open, is in the hands of who posts it.
        let registered = unsafe { (api.ibv_reg_mr)(self.pointer, region.base().cast(), length, access) };
        let kept = Kept { region: region.nothing(), registered };
        let whole = kept.whole();
        all.push(kept);
        whole
    }
}

impl Kept {
    fn whole(&self) -> Option<*mut MemoryRegion> {
        (!self.registered.is_null()).then_some(self.registered)
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        let Ok(api) = ffi::load() else { return };
        let kept = self.regions.get_mut().unwrap_or_else(PoisonError::into_inner);
        for Kept { registered, .. } in kept.iter().filter(|kept| !kept.registered.is_null()) {
            // SAFETY: no connection of this domain is left that could use it.
            unsafe { (api.ibv_dereg_mr)(*registered) };
        }
        // SAFETY: whatever else belongs to it holds it, so nothing is left.
        unsafe { (api.ibv_dealloc_pd)(self.pointer) };
    }
}

/// The domains of one listener, or of those that connect: one for each adapter, that all its connections share.
///
/// They belong to the connections, as do the receives that those share. An adapter that was unplugged is closed behind its last connection,
/// and what belongs to it must be gone by then; another one may be opened at the same place in memory.
#[derive(Default)]
pub(crate) struct Domains {
    domains: Mutex<Vec<Shared<Domain>>>,
    receives: Mutex<Vec<Shared<SharedReceives>>>,
    /// Receives of one adapter that its connections share, at the most.
    receives_max: u32,
}

/// What there is for an adapter, whose context has this address, as long as somebody else holds it.
type Shared<T> = (usize, Weak<T>);

impl Domains {
    /// Those whose connections share so many receives of an adapter, at the most; 0 for none.
    pub(crate) fn sharing(receives_max: u32) -> Domains {
        Domains { receives_max, ..Domains::default() }
    }

    /// The receives that the connections of a domain share, each for a message of at most so many bytes; `None` where they do not, or the
    /// adapter has none left.
    pub(crate) fn receives_of(&self, domain: &Arc<Domain>, longest_bytes: usize) -> Option<Arc<SharedReceives>> {
        let most = self.receives_max.min(domain.capabilities.shared_receives_max);
        if domain.members != Members::Accepted || most == 0 {
            return None;
        }
        let mut all = self.receives.lock().unwrap_or_else(PoisonError::into_inner);
        let of = domain.pointer.addr();
        all.retain(|(known, one)| *known != of || one.upgrade().is_some_and(|one| !one.is_worn()));
        let made = shared(&mut all, of, || SharedReceives::new(domain, most, longest_bytes).map(Arc::new));
        made.inspect_err(|error| tracing::debug!("a connection has receives of its own: {error}")).ok()
    }

    /// The domain for a connection of an adapter, which is another one each time where it is for one.
    ///
    /// # Safety
    /// As for `Domain::new`.
    ///
    /// # Errors
    /// The adapter's.
    pub(crate) unsafe fn of(
        &self,
        context: *mut Context,
        capabilities: Capabilities,
        members: Members,
    ) -> Result<Arc<Domain>, Error> {
        if members == Members::One {
            // SAFETY: the caller promises what this wants.
            return unsafe { Domain::new(context, capabilities, members) };
        }
        let mut all = self.domains.lock().unwrap_or_else(PoisonError::into_inner);
        shared(&mut all, context.addr(), || {
            // SAFETY: as above.
            unsafe { Domain::new(context, capabilities, members) }
        })
    }
}

/// What is there for this address, or else is made. What belongs to other addresses is not even held for a moment: who holds it last must
/// be one of its own.
fn shared<T>(
    all: &mut Vec<Shared<T>>,
    address: usize,
    make: impl FnOnce() -> Result<Arc<T>, Error>,
) -> Result<Arc<T>, Error> {
    all.retain(|(_, one)| one.strong_count() > 0);
    let known = all.iter().find(|(of, _)| *of == address);
    if let Some(known) = known.and_then(|(_, one)| one.upgrade()) {
        return Ok(known);
    }
    let made = make()?;
    all.push((address, Arc::downgrade(&made)));
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_an_adapter_share_and_what_none_of_them_holds_is_gone() {
        let mut all: Vec<Shared<u8>> = Vec::new();
        let mut of = |address, number| shared(&mut all, address, || Ok(Arc::new(number))).unwrap();
        let (first, second, other) = (of(7, 1), of(7, 2), of(8, 3));
        assert_eq!((*first, *second, *other), (1, 1, 3));
        let watched = Arc::downgrade(&first);
        drop(first);
        assert_eq!(*of(7, 4), 1, "the second holds it");
        drop(second);
        assert_eq!(watched.strong_count(), 0, "the listener does not");
        assert_eq!((*of(7, 5), *of(8, 6)), (5, 3), "an adapter that was opened at the place of one that is gone");
    }
}
