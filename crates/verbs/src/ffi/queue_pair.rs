//! What a queue pair is made with, and what it can be told and asked: structures and numbers of `infiniband/verbs.h`.

use libc::{c_int, c_void};

use super::assert_layout;
use super::verbs::{CompletionQueue, SharedReceiveQueue};

/// `ibv_qp_init_attr`.
#[repr(C)]
pub(crate) struct QpInitAttributes {
    pub(crate) context: *mut c_void,
    pub(crate) send_queue: *mut CompletionQueue,
    pub(crate) receive_queue: *mut CompletionQueue,
    pub(crate) shared_receives: *mut SharedReceiveQueue,
    pub(crate) limits: QpLimits,
    pub(crate) kind: c_int,
    /// Whether everything that is posted is told of when it has ended, as if it asked for that.
    pub(crate) signals_all: c_int,
}
assert_layout!(QpInitAttributes, 64, send_queue = 8, shared_receives = 24, limits = 32, kind = 52, signals_all = 56);

/// `ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct QpLimits {
    pub(crate) sends: u32,
    pub(crate) receives: u32,
    pub(crate) send_pieces: u32,
    pub(crate) receive_pieces: u32,
    pub(crate) inline_bytes: u32,
}

/// `IBV_QPT_RC`: reliable and connected.
pub(crate) const QP_RELIABLE: c_int = 2;

/// `ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct QpAttributes {
    pub(crate) state: c_int,
    _state: c_int,
    /// Of the numbers that [`mtu_bytes`] knows.
    pub(crate) path_mtu: c_int,
    _migration: c_int,
    _states: [u64; 14],
    pub(crate) not_ready_timer: u8,
    _paths: [u8; 15],
}
assert_layout!(QpAttributes, 144, state = 0, path_mtu = 8, not_ready_timer = 128);

impl QpAttributes {
    /// Those that are changed one at a time, the state, or the timer of who finds no receive; or a place for what is asked.
    pub(crate) fn new(state: c_int, not_ready_timer: u8) -> QpAttributes {
        QpAttributes {
            state,
            _state: 0,
            path_mtu: 0,
            _migration: 0,
            _states: [0; 14],
            not_ready_timer,
            _paths: [0; 15],
        }
    }
}

/// `IBV_QP_STATE` and `IBV_QP_MIN_RNR_TIMER`: what is said of a queue pair; and `IBV_QP_PATH_MTU`, which is asked.
pub(crate) const QP_STATE: c_int = 1;
pub(crate) const QP_NOT_READY_TIMER: c_int = 1 << 15;
pub(crate) const QP_PATH_MTU: c_int = 1 << 8;
/// `IBV_QPS_ERR`.
pub(crate) const QP_STATE_ERROR: c_int = 6;

/// What a number of `ibv_mtu` stands for: the most data of a packet, in bytes. `None` for one that is none: some iWARP adapters say 0.
pub(crate) fn mtu_bytes(number: c_int) -> Option<u32> {
    (1..=5).contains(&number).then(|| 128 << number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtu_is_what_its_number_stands_for() {
        let bytes: Vec<_> = (0..7).map(mtu_bytes).collect();
        assert_eq!(bytes, [None, Some(256), Some(512), Some(1024), Some(2048), Some(4096), None]);
    }
}
