//! Threads that do what a store leaves to the kernel.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use sanwire_store::{Completion, KernelOp};
use sanwire_store_file::blocking;

use super::Bell;

/// So many operations go on side by side.
const WORKERS: usize = 8;

/// Which operation of which flight.
pub(super) type Number = (u64, u32);

/// The threads; they end when this is dropped.
#[derive(Debug)]
pub(super) struct Workers {
    orders: Sender<(Number, KernelOp)>,
    ends: Receiver<(Number, Completion)>,
}

impl Workers {
    /// They ring when something has ended.
    pub(super) fn start(bell: &Arc<Bell>) -> io::Result<Workers> {
        let (orders, taken) = mpsc::channel::<(Number, KernelOp)>();
        let (end, ends) = mpsc::channel();
        let taken = Arc::new(Mutex::new(taken));
        for _ in 0..WORKERS {
            let (taken, end, bell) = (Arc::clone(&taken), end.clone(), Arc::clone(bell));
            thread::Builder::new().name("volume-file".to_owned()).spawn(move || {
                loop {
                    let next = taken.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((number, op)) = next else { return };
                    if end.send((number, blocking::perform(op))).is_err() {
                        return;
                    }
                    bell.ring();
                }
            })?;
        }
        Ok(Workers { orders, ends })
    }

    pub(super) fn order(&self, number: Number, op: KernelOp) {
        // They live as long as this.
        let _ = self.orders.send((number, op));
    }

    /// What has ended since this was asked last.
    pub(super) fn ended(&self) -> impl Iterator<Item = (Number, Completion)> + '_ {
        self.ends.try_iter()
    }
}
