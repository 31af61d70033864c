//! A volume over a store in memory, served by a thread of its own until its last handle is gone.

use std::sync::{Arc, mpsc};

use sanwire_buffer::Region;
use sanwire_core::Lun;
use sanwire_initiator::{
    AllocatedRun, BufferPool, InfoCell, Op, OpKind, OpOutput, OpQueue, Volume, VolumeError, VolumeInfo, WireUnit,
};
use sanwire_store::{Outcome, RamStore, Request};
use sanwire_store_file::blocking;

/// What a volume of this size tells.
pub(crate) fn info(size_bytes: u64, block_bytes: u32) -> VolumeInfo {
    VolumeInfo {
        name: "disk".into(),
        lun: Lun::default(),
        size_bytes,
        block_bytes,
        physical_block_bytes: block_bytes,
        read_only: false,
        discards: true,
        transfer_max_bytes: 256 << 10,
        transfer_limit_bytes: 256 << 10,
        range_max_bytes: 1 << 30,
        server: "memory".into(),
        wire: "none".into(),
        unit: WireUnit::Packet(1500),
        protection: None,
        is_compressed: false,
        rate_cap_bytes_per_second: None,
        identity: "memory".into(),
        naa: None,
    }
}

/// Serves the volume; operations that `refuses` fail.
pub(crate) fn serve(info: VolumeInfo, refuses: impl Fn(&OpKind) -> Option<VolumeError> + Send + 'static) -> Volume {
    let store = RamStore::new(info.size_bytes, info.block_bytes);
    let (sender, bell) = mpsc::channel();
    let queue = OpQueue::new(Arc::new(move || {
        let _ = sender.send(());
    }));
    let pool = BufferPool::new(Region::new(8 << 20).unwrap());
    let volume = Volume::from_queue(InfoCell::new(info), &queue, pool);
    std::thread::spawn(move || {
        loop {
            while let Some(op) = queue.pop() {
                match refuses(&op.kind) {
                    Some(error) => op.completer.complete(Err(error)),
                    None => perform(&store, op),
                }
            }
            if queue.is_abandoned() {
                return;
            }
            if queue.prepare_to_sleep() {
                bell.recv().unwrap();
                queue.awake();
            }
        }
    });
    volume
}

fn perform(store: &RamStore, op: Op) {
    if let OpKind::Allocation { offset_bytes, length_bytes } = op.kind {
        let question = Request::Allocation { offset_bytes, length_bytes };
        let Ok(Outcome::Allocated(run)) = blocking::run(store, question) else { panic!("nothing else is answered") };
        let run = AllocatedRun { length_bytes: run.length_bytes, is_mapped: run.is_mapped };
        return op.completer.complete(Ok(OpOutput::Allocation(vec![run])));
    }
    let request = match op.kind {
        OpKind::Check => return op.completer.complete(Ok(OpOutput::Done)),
        OpKind::Copy { .. } => return op.completer.complete(Err(VolumeError::Unsupported)),
        OpKind::Read { offset_bytes, buffer } => Request::Read { offset_bytes, buffer },
        OpKind::Write { offset_bytes, data, .. } => Request::Write { offset_bytes, data: data.into() },
        OpKind::Flush => Request::Flush,
        OpKind::Discard { offset_bytes, length_bytes } => Request::Discard { offset_bytes, length_bytes },
        OpKind::WriteZeroes { offset_bytes, length_bytes } => Request::WriteZeroes { offset_bytes, length_bytes },
        OpKind::Allocation { offset_bytes, length_bytes } => Request::Allocation { offset_bytes, length_bytes },
    };
    op.completer.complete(Ok(match blocking::run(store, request).expect("memory takes it") {
        Outcome::Read(frame) => OpOutput::Frame(frame),
        Outcome::Done | Outcome::Allocated(_) => OpOutput::Done,
    }));
}
