//! Structures and numbers of `infiniband/verbs.h`.

use std::marker::PhantomPinned;

use libc::{c_char, c_int, c_void};

use super::assert_layout;

/// What only the library looks into.
#[repr(C)]
pub(crate) struct Opaque {
    _bytes: [u8; 0],
    _pinned: PhantomPinned,
}

/// `ibv_pd`.
pub(crate) type ProtectionDomain = Opaque;

/// `ibv_device`.
#[repr(C)]
pub(crate) struct Device {
    _operations: [*mut c_void; 2],
    pub(crate) node_type: c_int,
    pub(crate) transport_type: c_int,
    pub(crate) name: [c_char; 64],
    _names: [c_char; 64 + 256 + 256],
}
assert_layout!(Device, 664, transport_type = 20, name = 24);

/// `IBV_TRANSPORT_IWARP`.
pub(crate) const TRANSPORT_IWARP: c_int = 1;

type Unused = *mut c_void;

/// `ibv_context_ops`: what the header's inline functions call.
#[repr(C)]
pub(crate) struct ContextOperations {
    _queries: [Unused; 7],
    /// Not there where there are no memory windows.
    pub(crate) alloc_mw: Option<unsafe extern "C" fn(*mut ProtectionDomain, c_int) -> *mut MemoryWindow>,
    _bind_mw: Unused,
    pub(crate) dealloc_mw: Option<unsafe extern "C" fn(*mut MemoryWindow) -> c_int>,
    _compatible: Unused,
    pub(crate) poll_cq: unsafe extern "C" fn(*mut CompletionQueue, c_int, *mut WorkCompletion) -> c_int,
    pub(crate) req_notify_cq: unsafe extern "C" fn(*mut CompletionQueue, c_int) -> c_int,
    _queues: [Unused; 7],
    pub(crate) post_srq_recv:
        unsafe extern "C" fn(*mut SharedReceiveQueue, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int,
    _queue_pairs: [Unused; 4],
    pub(crate) post_send: unsafe extern "C" fn(*mut QueuePair, *mut SendRequest, *mut *mut SendRequest) -> c_int,
    pub(crate) post_recv: unsafe extern "C" fn(*mut QueuePair, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int,
    _others: [Unused; 5],
}
assert_layout!(
    ContextOperations,
    256,
    alloc_mw = 56,
    dealloc_mw = 72,
    poll_cq = 88,
    req_notify_cq = 96,
    post_srq_recv = 160,
    post_send = 200,
    post_recv = 208
);

/// The beginning of `ibv_context`.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) device: *mut Device,
    pub(crate) operations: ContextOperations,
    _commands: c_int,
    /// Where the kernel tells of what belongs to no completion.
    pub(crate) events: c_int,
    _pinned: PhantomPinned,
}
assert_layout!(Context, 272, device = 0, operations = 8, events = 268);

/// `ibv_device_attr`.
#[repr(C)]
pub(crate) struct DeviceAttributes {
    _identity: [u64; 12],
    pub(crate) vendor: u32,
    pub(crate) vendor_part: u32,
    pub(crate) hardware_version: u32,
    pub(crate) max_qp: c_int,
    pub(crate) max_qp_wr: c_int,
    pub(crate) capabilities: u32,
    pub(crate) max_sge: c_int,
    pub(crate) max_sge_rd: c_int,
    pub(crate) max_cq: c_int,
    pub(crate) max_cqe: c_int,
    pub(crate) max_mr: c_int,
    pub(crate) max_pd: c_int,
    pub(crate) max_qp_rd_atom: c_int,
    pub(crate) max_ee_rd_atom: c_int,
    pub(crate) max_res_rd_atom: c_int,
    pub(crate) max_qp_init_rd_atom: c_int,
    _domains: [u32; 4],
    pub(crate) max_mw: c_int,
    _groups: [u32; 8],
    pub(crate) max_srq: c_int,
    pub(crate) max_srq_wr: c_int,
    _rest: [u32; 3],
}
assert_layout!(
    DeviceAttributes,
    232,
    vendor = 96,
    max_qp_wr = 112,
    capabilities = 116,
    max_cqe = 132,
    max_qp_rd_atom = 144,
    max_qp_init_rd_atom = 156,
    max_mw = 176,
    max_srq = 212,
    max_srq_wr = 216
);

/// `IBV_DEVICE_MEM_MGT_EXTENSIONS`: it sends messages that end keys of the other end, among other things.
pub(crate) const CAPABILITY_MEMORY_MANAGEMENT: u32 = 1 << 21;
/// `IBV_DEVICE_MEM_WINDOW_TYPE_2A` and `IBV_DEVICE_MEM_WINDOW_TYPE_2B`: memory windows whose keys one queue pair knows alone.
pub(crate) const CAPABILITY_WINDOWS: u32 = 1 << 23 | 1 << 24;
/// The vendor of rxe, the kernel's RoCE in software: that of who has none.
pub(crate) const VENDORS_RXE: [u32; 2] = [0, 0xff_ffff];

/// `ibv_mr`.
#[repr(C)]
pub(crate) struct MemoryRegion {
    _owner: [Unused; 2],
    pub(crate) address: *mut c_void,
    pub(crate) length: usize,
    _handle: u32,
    pub(crate) local_key: u32,
    pub(crate) remote_key: u32,
}
assert_layout!(MemoryRegion, 48, address = 16, length = 24, local_key = 36, remote_key = 40);

/// `IBV_ACCESS_*`.
pub(crate) const ACCESS_LOCAL_WRITE: c_int = 1;
pub(crate) const ACCESS_REMOTE_WRITE: c_int = 2;
pub(crate) const ACCESS_REMOTE_READ: c_int = 4;
pub(crate) const ACCESS_WINDOWS: c_int = 16;

/// `ibv_mw`.
#[repr(C)]
pub(crate) struct MemoryWindow {
    pub(crate) context: *mut Context,
    _domain: *mut ProtectionDomain,
    /// Whoever binds a window of type 2 writes the new key here.
    pub(crate) remote_key: u32,
    _handle: u32,
    _kind: c_int,
}
assert_layout!(MemoryWindow, 32, remote_key = 16);

/// `IBV_MW_TYPE_2`.
pub(crate) const WINDOW_TYPE_2: c_int = 2;

/// The beginning of `ibv_comp_channel`.
#[repr(C)]
pub(crate) struct CompletionChannel {
    _context: *mut Context,
    pub(crate) descriptor: c_int,
}
assert_layout!(CompletionChannel, 16, descriptor = 8);

/// The beginning of `ibv_cq`.
#[repr(C)]
pub(crate) struct CompletionQueue {
    pub(crate) context: *mut Context,
    _pinned: PhantomPinned,
}

/// The beginning of `ibv_srq`.
#[repr(C)]
pub(crate) struct SharedReceiveQueue {
    pub(crate) context: *mut Context,
    _pinned: PhantomPinned,
}

/// `ibv_srq_init_attr`.
#[repr(C)]
pub(crate) struct SrqInitAttributes {
    pub(crate) context: *mut c_void,
    pub(crate) receives: u32,
    pub(crate) pieces: u32,
    /// So few are left when the kernel is to tell; 0 for never.
    pub(crate) limit: u32,
}
assert_layout!(SrqInitAttributes, 24, receives = 8, pieces = 12, limit = 16);

/// `ibv_async_event`.
#[repr(C)]
pub(crate) struct AsyncEvent {
    /// What it is about; an address, but for events of ports.
    pub(crate) element: *mut c_void,
    pub(crate) kind: c_int,
}
assert_layout!(AsyncEvent, 16, element = 0, kind = 8);

/// `IBV_EVENT_QP_LAST_WQE_REACHED`.
pub(crate) const EVENT_LAST_RECEIVE: c_int = 16;

/// The beginning of `ibv_qp`.
#[repr(C)]
pub(crate) struct QueuePair {
    pub(crate) context: *mut Context,
    _pinned: PhantomPinned,
}

/// `ibv_sge`: a piece of registered memory.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ScatterGather {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) local_key: u32,
}
assert_layout!(ScatterGather, 16, address = 0, length = 8, local_key = 12);

/// `ibv_send_wr`.
#[repr(C)]
pub(crate) struct SendRequest {
    pub(crate) id: u64,
    pub(crate) next: *mut SendRequest,
    pub(crate) pieces: *mut ScatterGather,
    pub(crate) piece_count: c_int,
    pub(crate) opcode: c_int,
    pub(crate) flags: u32,
    pub(crate) invalidate_key: u32,
    pub(crate) remote_address: u64,
    pub(crate) remote_key: u32,
    _others: [u64; 3],
    pub(crate) window: *mut MemoryWindow,
    /// The key that it gets.
    pub(crate) window_key: u32,
    pub(crate) window_over: WindowOver,
}
assert_layout!(
    SendRequest,
    128,
    next = 8,
    pieces = 16,
    piece_count = 24,
    opcode = 28,
    flags = 32,
    invalidate_key = 36,
    remote_address = 40,
    remote_key = 48,
    window = 80,
    window_key = 88,
    window_over = 96
);

/// `ibv_mw_bind_info`: the memory that is seen by a window.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WindowOver {
    pub(crate) region: *mut MemoryRegion,
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) access: c_int,
}
assert_layout!(WindowOver, 32, address = 8, length = 16, access = 24);

impl SendRequest {
    /// One of no bytes, which asks for nothing.
    pub(crate) fn new(id: u64, opcode: c_int) -> SendRequest {
        SendRequest {
            id,
            next: std::ptr::null_mut(),
            pieces: std::ptr::null_mut(),
            piece_count: 0,
            opcode,
            flags: 0,
            invalidate_key: 0,
            remote_address: 0,
            remote_key: 0,
            _others: [0; 3],
            window: std::ptr::null_mut(),
            window_key: 0,
            window_over: WindowOver { region: std::ptr::null_mut(), address: 0, length: 0, access: 0 },
        }
    }
}

/// `IBV_WR_*`.
pub(crate) const OPCODE_WRITE: c_int = 0;
pub(crate) const OPCODE_SEND: c_int = 2;
pub(crate) const OPCODE_READ: c_int = 4;
pub(crate) const OPCODE_BIND_WINDOW: c_int = 8;
pub(crate) const OPCODE_SEND_WITH_INVALIDATE: c_int = 9;
/// `IBV_SEND_*`.
pub(crate) const SEND_SIGNALED: u32 = 2;
pub(crate) const SEND_SOLICITED: u32 = 4;

/// `ibv_recv_wr`.
#[repr(C)]
pub(crate) struct ReceiveRequest {
    pub(crate) id: u64,
    pub(crate) next: *mut ReceiveRequest,
    pub(crate) pieces: *mut ScatterGather,
    pub(crate) piece_count: c_int,
}
assert_layout!(ReceiveRequest, 32, pieces = 16, piece_count = 24);

/// `ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct WorkCompletion {
    pub(crate) id: u64,
    pub(crate) status: c_int,
    /// Means nothing where the status is an error.
    pub(crate) opcode: c_int,
    pub(crate) vendor_error: u32,
    pub(crate) length_bytes: u32,
    pub(crate) invalidated_key: u32,
    _queue_pairs: [u32; 2],
    pub(crate) flags: u32,
    _path: [u16; 4],
}
assert_layout!(WorkCompletion, 48, status = 8, length_bytes = 20, invalidated_key = 24, flags = 36);

/// `IBV_WC_*`: how work has ended.
pub(crate) const STATUS_SUCCESS: c_int = 0;
pub(crate) const STATUS_LOCAL_LENGTH: c_int = 1;
pub(crate) const STATUS_LOCAL_PROTECTION: c_int = 4;
pub(crate) const STATUS_FLUSHED: c_int = 5;
pub(crate) const STATUS_REMOTE_INVALID_REQUEST: c_int = 9;
pub(crate) const STATUS_REMOTE_ACCESS: c_int = 10;
pub(crate) const STATUS_REMOTE_OPERATION: c_int = 11;

/// A receive has ended a key of this end: `IBV_WC_WITH_INV`, or the kernel's number for the same, which librxe passes on.
pub(crate) const FLAGS_INVALIDATED: u32 = 0x8 | 0x4;
