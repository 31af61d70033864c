//! The connection manager (librdmacm): how connections come about, and how they end.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::slice;

use libc::{c_int, c_void};

use crate::adapter::absence;
use crate::address;
use crate::error::{Error, check};
use crate::ffi::{
    self, CmEvent, CmId, ConnectionParameters, Context, EVENT_CONNECT_REQUEST, EventChannel, OPTION_LEVEL_ID,
    OPTION_REUSE_ADDRESS, PORT_SPACE_TCP,
};
use crate::readiness::set_nonblocking;

/// How long finding an address or a route may take.
const RESOLVE_MS: c_int = 5000;

/// Tries before an adapter takes the other end for gone (3 bits).
const RETRIES: u8 = 7;

/// The same for an end that has posted no receives; 7 is for ever: an end that is late is not gone.
const RETRIES_NOT_READY: u8 = 7;

/// The private data that has a meaning. What follows is what the manager has padded it with.
const PRIVATE_DATA_BYTES: usize = 4;

/// A channel for events, with one identifier.
pub(crate) struct Manager {
    // The identifier goes before the channel.
    id: Id,
    channel: Channel,
}

/// What has happened.
#[derive(Debug)]
pub(crate) struct Notice {
    pub(crate) kind: c_int,
    /// An error of the kernel, or the reason of a refusal.
    pub(crate) status: c_int,
    /// The first bytes of it, as many as have a meaning here.
    pub(crate) private_data: Vec<u8>,
    /// RDMA Reads at a time, by the other end and by this one, as it proposes or agrees.
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
}

/// How many RDMA Reads there are at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Depths {
    /// By the other end.
    pub(crate) served: u8,
    /// By this end.
    pub(crate) given: u8,
}

struct Channel(*mut EventChannel);

struct Id(*mut CmId);

// SAFETY: the library may be called from any thread; it has locks of its own.
unsafe impl Send for Manager {}
// SAFETY: as above.
unsafe impl Sync for Manager {}

impl Channel {
    fn new() -> Result<Channel, Error> {
        let api = ffi::load()?;
        // SAFETY: the function has no preconditions.
        let pointer = unsafe { (api.rdma_create_event_channel)() };
        if pointer.is_null() {
            return Err(absence(io::Error::last_os_error()).into());
        }
        let channel = Channel(pointer);
        set_nonblocking(channel.descriptor())
            .map_err(|source| Error::Adapter { what: "the connection manager of RDMA cannot be asked", source })?;
        Ok(channel)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is open as long as this exists.
        unsafe { BorrowedFd::borrow_raw((*self.0).descriptor) }
    }

    /// The next event, which is not acknowledged yet.
    fn next(&self) -> Result<Option<*mut CmEvent>, Error> {
        let api = ffi::load()?;
        let mut event = ptr::null_mut();
        // SAFETY: the channel lives and does not block; the place is written to during the call.
        if unsafe { (api.rdma_get_cm_event)(self.0, &raw mut event) } == 0 {
            return Ok(Some(event));
        }
        let error = io::Error::last_os_error();
        if error.kind() == io::ErrorKind::WouldBlock || error.kind() == io::ErrorKind::Interrupted {
            return Ok(None);
        }
        Err(Error::Adapter { what: "the connection manager of RDMA does not answer", source: error })
    }
}

impl Notice {
    /// # Safety
    /// `event` has not been acknowledged yet.
    unsafe fn read(event: *const CmEvent) -> Notice {
        // SAFETY: the caller promises that the event is there; it is not changed.
        let event = unsafe { &*event };
        let parameters = &event.connection;
        let count = PRIVATE_DATA_BYTES.min(usize::from(parameters.private_data_bytes));
        let private_data = if parameters.private_data.is_null() {
            Vec::new()
        } else {
            // SAFETY: so many bytes are there as long as the event is, and no more are read.
            unsafe { slice::from_raw_parts(parameters.private_data.cast::<u8>(), count) }.to_vec()
        };
        Notice {
            kind: event.kind,
            status: event.status,
            private_data,
            responder_resources: parameters.responder_resources,
            initiator_depth: parameters.initiator_depth,
        }
    }
}

impl Manager {
    /// # Errors
    /// When there is no RDMA.
    pub(crate) fn new() -> Result<Self, Error> {
        let (api, channel) = (ffi::load()?, Channel::new()?);
        let mut id = ptr::null_mut();
        // SAFETY: the channel lives longer than the identifier; the place is written to during the call.
        let result = unsafe { (api.rdma_create_id)(channel.0, &raw mut id, ptr::null_mut(), PORT_SPACE_TCP) };
        check("the connection manager of RDMA has no identifier", result)?;
        Ok(Manager { id: Id(id), channel })
    }

    /// The identifier, for who has this as long as that.
    pub(crate) fn id(&self) -> *mut CmId {
        self.id.0
    }

    /// What is readable when there is a notice.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.channel.descriptor()
    }

    /// The next notice, if there is one.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn next(&self) -> Result<Option<Notice>, Error> {
        let Some(event) = self.channel.next()? else { return Ok(None) };
        // SAFETY: it is acknowledged below.
        let notice = unsafe { Notice::read(event) };
        // SAFETY: it was got above, and nothing of it is used any more.
        unsafe { (ffi::load()?.rdma_ack_cm_event)(event) };
        Ok(Some(notice))
    }

    /// The same at a listener: a request comes with a manager of its own.
    ///
    /// # Errors
    /// The kernel's. A request that cannot be taken over is refused.
    pub(crate) fn next_request(&self) -> Result<Option<(Notice, Option<Manager>)>, Error> {
        let api = ffi::load()?;
        let Some(event) = self.channel.next()? else { return Ok(None) };
        // SAFETY: as in `next`.
        let (notice, id) = unsafe { (Notice::read(event), (*event).id) };
        // SAFETY: as in `next`. Its identifier stays.
        unsafe { (api.rdma_ack_cm_event)(event) };
        if notice.kind != EVENT_CONNECT_REQUEST {
            return Ok(Some((notice, None)));
        }
        // Dropped, it refuses the request.
        let id = Id(id);
        let channel = Channel::new()?;
        // SAFETY: both live, and the event that told of the identifier is acknowledged, for which the call would wait.
        check("a request cannot be taken over", unsafe { (api.rdma_migrate_id)(id.0, channel.0) })?;
        Ok(Some((notice, Some(Manager { id, channel }))))
    }

    /// Listens at an address.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn listen(&self, address: SocketAddr, backlog: u16) -> Result<(), Error> {
        let api = ffi::load()?;
        let (mut reuse, mut place): (c_int, _) = (1, address::to_c(address));
        // SAFETY: the identifier lives; option and address are read during the calls.
        let result = unsafe {
            // A server that has just ended leaves connections that are about to end.
            let option = (&raw mut reuse).cast::<c_void>();
            (api.rdma_set_option)(self.id(), OPTION_LEVEL_ID, OPTION_REUSE_ADDRESS, option, size_of::<c_int>());
            match (api.rdma_bind_addr)(self.id(), (&raw mut place).cast()) {
                0 => (api.rdma_listen)(self.id(), c_int::from(backlog)),
                failed => failed,
            }
        };
        if result == 0 { Ok(()) } else { Err(Error::Listen { address, source: io::Error::last_os_error() }) }
    }

    /// Begins to find out which adapter leads to an address.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn resolve_address(&self, peer: SocketAddr) -> Result<(), Error> {
        let mut place = address::to_c(peer);
        // SAFETY: the identifier lives; the address is read during the call.
        let result = unsafe {
            (ffi::load()?.rdma_resolve_addr)(self.id(), ptr::null_mut(), (&raw mut place).cast(), RESOLVE_MS)
        };
        check("no RDMA adapter leads to the address", result)
    }

    /// Begins to find out by which way.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn resolve_route(&self) -> Result<(), Error> {
        // SAFETY: the identifier lives.
        check("no RDMA adapter leads to the address", unsafe {
            (ffi::load()?.rdma_resolve_route)(self.id(), RESOLVE_MS)
        })
    }

    /// Asks for a connection.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn connect(&self, private_data: &[u8], depths: Depths) -> Result<(), Error> {
        let mut parameters = parameters(private_data, depths);
        // SAFETY: the identifier lives; parameters and private data are read during the call.
        check("a connection cannot be asked for", unsafe {
            (ffi::load()?.rdma_connect)(self.id(), &raw mut parameters)
        })
    }

    /// Takes a request.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn accept(&self, private_data: &[u8], depths: Depths) -> Result<(), Error> {
        let mut parameters = parameters(private_data, depths);
        // SAFETY: as above.
        check("a request cannot be accepted", unsafe { (ffi::load()?.rdma_accept)(self.id(), &raw mut parameters) })
    }

    /// Refuses a request.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn reject(&self, private_data: &[u8]) -> Result<(), Error> {
        let length = private_data.len().min(PRIVATE_DATA_BYTES);
        // SAFETY: the identifier lives; the private data is read during the call.
        let result = unsafe { (ffi::load()?.rdma_reject)(self.id(), private_data.as_ptr().cast(), length as u8) };
        check("a request cannot be refused", result)
    }

    /// Ends the connection: whatever is posted ends, and the other end is told. Nothing is wrong when it has ended already.
    pub(crate) fn disconnect(&self) {
        let Ok(api) = ffi::load() else { return };
        // SAFETY: the identifier lives.
        unsafe { (api.rdma_disconnect)(self.id()) };
    }

    /// The adapter, once there is one.
    pub(crate) fn context(&self) -> Option<*mut Context> {
        // SAFETY: the identifier lives.
        let context = unsafe { (*self.id()).verbs };
        (!context.is_null()).then_some(context)
    }

    /// The address of this end, as far as it is known.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier lives, and addresses are written to only by calls that this end makes.
        address::from_c(unsafe { &(*self.id()).source })
    }

    /// The address of the other end, as far as it is known.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        // SAFETY: as above.
        address::from_c(unsafe { &(*self.id()).destination })
    }
}

fn parameters(private_data: &[u8], depths: Depths) -> ConnectionParameters {
    ConnectionParameters {
        private_data: private_data.as_ptr().cast(),
        private_data_bytes: private_data.len().min(PRIVATE_DATA_BYTES) as u8,
        responder_resources: depths.served,
        initiator_depth: depths.given,
        flow_control: 0,
        retry_count: RETRIES,
        rnr_retry_count: RETRIES_NOT_READY,
        is_receive_shared: 0,
        queue_pair_number: 0,
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        let Ok(api) = ffi::load() else { return };
        // SAFETY: every event of it that was got is acknowledged, and whoever uses it has the manager that owns it.
        unsafe { (api.rdma_destroy_id)(self.0) };
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let Ok(api) = ffi::load() else { return };
        // SAFETY: its identifier is gone.
        unsafe { (api.rdma_destroy_event_channel)(self.0) };
    }
}
