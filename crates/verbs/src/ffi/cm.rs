//! Structures and numbers of `rdma/rdma_cma.h`.

use std::marker::PhantomPinned;

use libc::{c_int, c_void};

use super::assert_layout;
use super::verbs::{Context, QueuePair};

/// `rdma_event_channel`.
#[repr(C)]
pub(crate) struct EventChannel {
    pub(crate) descriptor: c_int,
}

/// The beginning of `rdma_cm_id`.
#[repr(C)]
pub(crate) struct CmId {
    /// The adapter, once one is found.
    pub(crate) verbs: *mut Context,
    pub(crate) channel: *mut EventChannel,
    pub(crate) context: *mut c_void,
    pub(crate) queue_pair: *mut QueuePair,
    pub(crate) source: libc::sockaddr_storage,
    pub(crate) destination: libc::sockaddr_storage,
    _pinned: PhantomPinned,
}
assert_layout!(CmId, 288, verbs = 0, channel = 8, queue_pair = 24, source = 32, destination = 160);

/// `RDMA_PS_TCP`: the ports of reliable connections.
pub(crate) const PORT_SPACE_TCP: c_int = 0x106;
/// `RDMA_OPTION_ID` and `RDMA_OPTION_ID_REUSEADDR`.
pub(crate) const OPTION_LEVEL_ID: c_int = 0;
pub(crate) const OPTION_REUSE_ADDRESS: c_int = 1;

/// `rdma_conn_param`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ConnectionParameters {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_bytes: u8,
    /// RDMA Reads of the other end at a time.
    pub(crate) responder_resources: u8,
    /// RDMA Reads of this end at a time.
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) is_receive_shared: u8,
    pub(crate) queue_pair_number: u32,
}
assert_layout!(
    ConnectionParameters,
    24,
    private_data_bytes = 8,
    responder_resources = 9,
    initiator_depth = 10,
    retry_count = 12,
    rnr_retry_count = 13,
    queue_pair_number = 16
);

/// `rdma_cm_event`.
#[repr(C)]
pub(crate) struct CmEvent {
    pub(crate) id: *mut CmId,
    pub(crate) listener: *mut CmId,
    pub(crate) kind: c_int,
    pub(crate) status: c_int,
    pub(crate) connection: ConnectionParameters,
    _datagrams: [u32; 8],
}
assert_layout!(CmEvent, 80, id = 0, listener = 8, kind = 16, status = 20, connection = 24);

/// `RDMA_CM_EVENT_*`.
pub(crate) const EVENT_ADDRESS_RESOLVED: c_int = 0;
pub(crate) const EVENT_ADDRESS_ERROR: c_int = 1;
pub(crate) const EVENT_ROUTE_RESOLVED: c_int = 2;
pub(crate) const EVENT_ROUTE_ERROR: c_int = 3;
pub(crate) const EVENT_CONNECT_REQUEST: c_int = 4;
pub(crate) const EVENT_CONNECT_ERROR: c_int = 6;
pub(crate) const EVENT_UNREACHABLE: c_int = 7;
pub(crate) const EVENT_REJECTED: c_int = 8;
pub(crate) const EVENT_ESTABLISHED: c_int = 9;
pub(crate) const EVENT_DISCONNECTED: c_int = 10;
pub(crate) const EVENT_DEVICE_REMOVAL: c_int = 11;
