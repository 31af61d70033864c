//! Protection domains: what belongs to one is reached by its own connections, and by no others.

use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use sanwire_buffer::Region;

use crate::adapter::Capabilities;
use crate::error::Error;
use crate::ffi::{self, ACCESS_LOCAL_WRITE, Context, MemoryRegion, ProtectionDomain};

/// Regions that one domain has registered as a whole, at the most.
const REGIONS_MAX: usize = 16;

/// A protection domain. The keys of many adapters are easy to guess: so connections share one only where none of them lets the other
/// end reach memory.
pub(crate) struct Domain {
    pub(crate) context: *mut Context,
    pub(crate) pointer: *mut ProtectionDomain,
    pub(crate) capabilities: Capabilities,
    /// Whether the regions are registered as a whole that its connections send from and read into.
    keeps_regions: bool,
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
    /// A domain for one connection.
    ///
    /// # Safety
    /// `context` is that of an adapter that stays open as long as the domain. librdmacm closes one that was unplugged behind the last
    /// identifier that has led to it: so whoever holds the domain lets go of it before an identifier of the same adapter.
    ///
    /// # Errors
    /// The adapter's.
    pub(crate) unsafe fn of_one(context: *mut Context, capabilities: Capabilities) -> Result<Arc<Self>, Error> {
        // SAFETY: the caller promises what this wants.
        unsafe { Domain::new(context, capabilities, false) }
    }

    /// # Safety
    /// As for [`Domain::of_one`].
    unsafe fn new(context: *mut Context, capabilities: Capabilities, keeps_regions: bool) -> Result<Arc<Self>, Error> {
        let api = ffi::load()?;
        // SAFETY: the caller promises that the context is one.
        let pointer = unsafe { (api.ibv_alloc_pd)(context) };
        if pointer.is_null() {
            return Err(Error::last("an RDMA adapter has no protection domain left"));
        }
        Ok(Arc::new(Domain { context, pointer, capabilities, keeps_regions, regions: RwLock::default() }))
    }

    /// By which key this end reaches all of a region, if it does. The first time it is registered, which takes some time, and all of it
    /// is locked from then on.
    pub(crate) fn key_of(&self, region: Option<&Region>) -> Option<u32> {
        let region = region.filter(|_| self.keeps_regions)?;
        let known = |kept: &[Kept]| kept.iter().find(|kept| kept.region.is_same(region)).map(Kept::key);
        if let Some(key) = known(&self.regions.read().unwrap_or_else(PoisonError::into_inner)) {
            return key;
        }
        let mut all = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = known(&all) {
            return key;
        }
        if all.len() >= REGIONS_MAX {
            return None;
        }
        let (api, length) = (ffi::load().ok()?, region.length_bytes());
        // SAFETY: the domain lives, and the region stays mapped as long as it. The other end gets no key; what the adapter does there for
        // this end is in the hands of who posts it.
        let registered = unsafe { (api.ibv_reg_mr)(self.pointer, region.base().cast(), length, ACCESS_LOCAL_WRITE) };
        let kept = Kept { region: region.nothing(), registered };
        let key = kept.key();
        all.push(kept);
        key
    }
}

impl Kept {
    fn key(&self) -> Option<u32> {
        // SAFETY: it is there as long as this.
        (!self.registered.is_null()).then(|| unsafe { (*self.registered).local_key })
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

/// The domains of one listener: one for each adapter, that all its connections share.
///
/// They belong to the connections. An adapter that was unplugged is closed behind its last connection, and what belongs to it must be gone
/// by then; another one may be opened at the same place in memory.
#[derive(Default)]
pub(crate) struct Domains(Mutex<Vec<Shared<Domain>>>);

/// What there is for an adapter, whose context has this address, as long as somebody else holds it.
type Shared<T> = (usize, Weak<T>);

impl Domains {
    /// The domain for a connection of an adapter. On iWARP it is another one each time: there the other end is told keys of what is read
    /// into.
    ///
    /// # Safety
    /// As for [`Domain::of_one`].
    ///
    /// # Errors
    /// The adapter's.
    pub(crate) unsafe fn of(&self, context: *mut Context, capabilities: Capabilities) -> Result<Arc<Domain>, Error> {
        if capabilities.is_iwarp() {
            // SAFETY: the caller promises what this wants.
            return unsafe { Domain::of_one(context, capabilities) };
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shared(&mut all, context.addr(), || {
            // SAFETY: as above.
            unsafe { Domain::new(context, capabilities, true) }
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
