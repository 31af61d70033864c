//! What adapters are, and what they have.

use std::ffi::CStr;
use std::fmt;
use std::io;

use crate::error::{Error, Unavailable};
use crate::ffi::{
    self, CAPABILITY_MEMORY_MANAGEMENT, CAPABILITY_WINDOWS, Context, DeviceAttributes, TRANSPORT_IWARP, VENDORS_RXE,
};
use crate::options::Opening;

/// Where the kernel tells of its adapters.
const ADAPTERS: &str = "/sys/class/infiniband";

/// What carries the RDMA of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// InfiniBand.
    InfiniBand,
    /// RoCE: that of InfiniBand, over Ethernet.
    Roce,
    /// iWARP: over TCP.
    Iwarp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::InfiniBand => "InfiniBand",
            Transport::Roce => "RoCE",
            Transport::Iwarp => "iWARP",
        })
    }
}

/// An adapter by which there is a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Adapter {
    /// What the kernel calls it.
    pub name: String,
    /// What carries its RDMA.
    pub transport: Transport,
}

impl fmt::Display for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.transport)
    }
}

/// Whether there is RDMA on this host: the libraries, the kernel's part, and an adapter that they can drive.
///
/// # Errors
/// What is missing, and what to do about it.
pub fn available() -> Result<(), Unavailable> {
    let api = ffi::load()?;
    // SAFETY: the function has no preconditions.
    let channel = unsafe { (api.rdma_create_event_channel)() };
    if channel.is_null() {
        return Err(absence(io::Error::last_os_error()));
    }
    // SAFETY: it was just made, and nothing uses it.
    unsafe { (api.rdma_destroy_event_channel)(channel) };
    let mut count = 0;
    // SAFETY: the count is written to during the call.
    let list = unsafe { (api.ibv_get_device_list)(&raw mut count) };
    if !list.is_null() {
        // SAFETY: it is that list, and none of its adapters is used.
        unsafe { (api.ibv_free_device_list)(list) };
    }
    if count > 0 { Ok(()) } else { Err(absence_of_adapters()) }
}

/// Why the kernel gives no event channel.
pub(crate) fn absence(source: io::Error) -> Unavailable {
    match source.raw_os_error() {
        Some(libc::ENODEV) if names().is_empty() => Unavailable::NoAdapter,
        Some(libc::EACCES | libc::EPERM | libc::EMFILE | libc::ENFILE | libc::ENOMEM) => {
            Unavailable::Unopened { source }
        }
        _ => Unavailable::Kernel { source },
    }
}

fn absence_of_adapters() -> Unavailable {
    let names = names();
    if names.is_empty() { Unavailable::NoAdapter } else { Unavailable::NoProvider { names: names.join(", ") } }
}

/// The adapters that the kernel has.
fn names() -> Vec<String> {
    let entries = std::fs::read_dir(ADAPTERS).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

/// What is known of an adapter once a connection has found its way to it.
#[derive(Clone, Debug)]
pub(crate) struct Capabilities {
    pub(crate) adapter: Adapter,
    /// Entries of one send or receive queue, at the most.
    pub(crate) queue_max: u32,
    /// Entries of one completion queue, at the most.
    pub(crate) completions_max: u32,
    /// RDMA Reads at a time for one connection: of the other end, and of this one.
    pub(crate) reads_served_max: u8,
    pub(crate) reads_given_max: u8,
    /// It sends messages that end a key of the other end.
    pub(crate) sends_invalidations: bool,
    /// Receives of one queue that queue pairs share, at the most.
    pub(crate) shared_receives_max: u32,
    /// Of a receive that it has taken of them for a message that never ends it does not tell.
    pub(crate) keeps_receives: bool,
    /// What windows it has.
    pub(crate) windows: WindowKind,
}

/// What windows an adapter has: they open a part of memory that is registered already, and to one queue pair only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WindowKind {
    /// None.
    None,
    /// Some through which the other end reaches all that is registered around them.
    Leaky,
    /// Those that the specification wants.
    Tight,
}

impl Capabilities {
    /// Asks the adapter.
    ///
    /// # Safety
    /// `context` is that of an adapter that is open.
    ///
    /// # Errors
    /// The adapter's.
    pub(crate) unsafe fn query(context: *mut Context) -> Result<Self, Error> {
        let api = ffi::load()?;
        // SAFETY: all of it are numbers, for which zero is one.
        let mut attributes: DeviceAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: the caller promises that the context is one; the attributes are written to during the call.
        let failed = unsafe { (api.ibv_query_device)(context, &raw mut attributes) };
        if failed != 0 {
            return Err(Error::number("an RDMA adapter does not say what it can do", failed));
        }
        // SAFETY: the device of a context lives as long as that, and its name ends with a zero.
        let (name, kind) = unsafe {
            let device = (*context).device;
            (CStr::from_ptr((&raw const (*device).name).cast()), (*device).transport_type)
        };
        let name = name.to_string_lossy().into_owned();
        let transport = if kind == TRANSPORT_IWARP { Transport::Iwarp } else { of_port(&name) };
        let count = |number: i32| u32::try_from(number).unwrap_or(0);
        let depth = |number: i32| u8::try_from(number.max(0)).unwrap_or(u8::MAX);
        Ok(Capabilities {
            adapter: Adapter { name, transport },
            queue_max: count(attributes.max_qp_wr),
            completions_max: count(attributes.max_cqe),
            reads_served_max: depth(attributes.max_qp_rd_atom),
            reads_given_max: depth(attributes.max_qp_init_rd_atom),
            sends_invalidations: attributes.capabilities & CAPABILITY_MEMORY_MANAGEMENT != 0,
            shared_receives_max: shared_receives(&attributes),
            keeps_receives: is_rxe(&attributes),
            windows: windows(&attributes),
        })
    }

    /// Whether memory is opened by windows of the adapter.
    pub(crate) fn opens_windows(&self, opening: Opening) -> bool {
        match opening {
            Opening::Safely => self.windows == WindowKind::Tight,
            Opening::ByWindows => self.windows != WindowKind::None,
            Opening::ByRegistration => false,
        }
    }

    pub(crate) fn is_iwarp(&self) -> bool {
        self.adapter.transport == Transport::Iwarp
    }
}

/// A completion queue has room for all of them, besides others.
fn shared_receives(attributes: &DeviceAttributes) -> u32 {
    let most = if attributes.max_srq > 0 { attributes.max_srq_wr.min(attributes.max_cqe / 2) } else { 0 };
    u32::try_from(most).unwrap_or(0)
}

/// rxe holds what a key is used for against all of the memory that is registered, not against the window (Linux 6.12: `check_rkey`); and
/// whoever ends the key of a window there twice ends the kernel (`rxe_do_invalidate_mw`).
fn windows(attributes: &DeviceAttributes) -> WindowKind {
    if attributes.capabilities & CAPABILITY_WINDOWS == 0 || attributes.max_mw <= 0 {
        WindowKind::None
    } else if is_rxe(attributes) {
        WindowKind::Leaky
    } else {
        WindowKind::Tight
    }
}

fn is_rxe(attributes: &DeviceAttributes) -> bool {
    VENDORS_RXE.contains(&attributes.vendor)
}

/// InfiniBand or RoCE, by what the first port of the adapter is connected to.
fn of_port(name: &str) -> Transport {
    match std::fs::read_to_string(format!("{ADAPTERS}/{name}/ports/1/link_layer")) {
        Ok(layer) if layer.trim() == "Ethernet" => Transport::Roce,
        _ => Transport::InfiniBand,
    }
}
