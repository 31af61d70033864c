use std::pin::pin;
use std::sync::mpsc;
use std::task::{Wake, Waker};

use sanwire_buffer::Region;

use super::*;
use crate::queue::Op;

const BLOCK_BYTES: u32 = 4096;

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

pub(crate) fn info() -> VolumeInfo {
    VolumeInfo {
        name: "ram".into(),
        lun: Lun::default(),
        size_bytes: 64 << 20,
        block_bytes: BLOCK_BYTES,
        physical_block_bytes: BLOCK_BYTES,
        read_only: false,
        discards: true,
        transfer_max_bytes: 1 << 20,
        transfer_limit_bytes: 1 << 20,
        range_max_bytes: 1 << 20,
        server: "test".into(),
        wire: "none".into(),
        unit: WireUnit::Packet(1500),
        protection: None,
        is_compressed: false,
        rate_cap_bytes_per_second: None,
        identity: "memory".into(),
        naa: None,
    }
}

fn open(info: VolumeInfo) -> (Volume, OpQueue) {
    let queue = OpQueue::new(Arc::new(|| ()));
    let pool = BufferPool::new(Region::new(8 << 20).unwrap());
    (Volume::from_queue(InfoCell::new(info), &queue, pool), queue)
}

/// Serves the volume from memory, on its own thread, until the last handle is gone.
fn serve_ram(info: VolumeInfo) -> (Volume, std::thread::JoinHandle<usize>) {
    let (sender, bell) = mpsc::channel();
    let queue = OpQueue::new(Arc::new(move || {
        let _ = sender.send(());
    }));
    let pool = BufferPool::new(Region::new(8 << 20).unwrap());
    let mut disk = vec![0xaa; info.size_bytes as usize];
    let volume = Volume::from_queue(InfoCell::new(info), &queue, pool);
    let driver = std::thread::spawn(move || {
        let mut ranges = 0;
        loop {
            while let Some(op) = queue.pop() {
                ranges += usize::from(matches!(op.kind, OpKind::Discard { .. } | OpKind::WriteZeroes { .. }));
                serve(op, &mut disk);
            }
            if queue.is_abandoned() {
                return ranges;
            }
            if queue.prepare_to_sleep() {
                bell.recv().unwrap();
                queue.awake();
            }
        }
    });
    (volume, driver)
}

fn serve(op: Op, disk: &mut [u8]) {
    let output = match op.kind {
        OpKind::Read { offset_bytes, mut buffer } => {
            let start = offset_bytes as usize;
            let end = start + buffer.len();
            buffer.copy_from_slice(&disk[start..end]);
            OpOutput::Frame(buffer)
        }
        OpKind::Write { offset_bytes, data, .. } => {
            disk[offset_bytes as usize..][..data.len()].copy_from_slice(&data);
            OpOutput::Done
        }
        OpKind::Discard { offset_bytes, length_bytes } | OpKind::WriteZeroes { offset_bytes, length_bytes } => {
            disk[offset_bytes as usize..][..length_bytes as usize].fill(0);
            OpOutput::Done
        }
        OpKind::Copy { .. } => return op.completer.complete(Err(VolumeError::Unsupported)),
        OpKind::Flush | OpKind::Check => OpOutput::Done,
        OpKind::Allocation { length_bytes, .. } => {
            OpOutput::Allocation(vec![AllocatedRun { length_bytes, is_mapped: false }])
        }
    };
    op.completer.complete(Ok(output));
}

#[test]
fn reads_what_was_written() {
    let (volume, driver) = serve_ram(info());
    block_on(async {
        let mut frame = volume.buffer(8192).await.unwrap();
        frame.fill(7);
        volume.write(4096, frame.freeze()).await.unwrap();
        volume.flush().await.unwrap();
        let frame = volume.read(0, volume.buffer(16384).await.unwrap()).await.unwrap();
        assert!(frame[..4096].iter().chain(&frame[12288..]).all(|byte| *byte == 0xaa));
        assert!(frame[4096..12288].iter().all(|byte| *byte == 7));
    });
    drop(volume);
    assert_eq!(driver.join().unwrap(), 0);
}

#[test]
fn ranges_are_split_for_the_wire() {
    let (volume, driver) = serve_ram(info());
    block_on(async {
        volume.write_zeroes(4096, 20 << 20).await.unwrap();
        volume.discard(32 << 20, 12288).await.unwrap();
        let frame = volume.read(0, volume.buffer(8192).await.unwrap()).await.unwrap();
        assert_eq!((frame[4095], frame[4096]), (0xaa, 0));
        let frame = volume.read(20 << 20, volume.buffer(8192).await.unwrap()).await.unwrap();
        assert_eq!((frame[4095], frame[4096]), (0, 0xaa));
    });
    drop(volume);
    assert_eq!(driver.join().unwrap(), 21);
}

#[test]
fn a_failed_part_fails_the_range_and_ends_it() {
    let (volume, queue) = open(info());
    let mut range = pin!(volume.discard(0, 32 << 20));
    let mut context = Context::from_waker(Waker::noop());
    assert!(range.as_mut().poll(&mut context).is_pending());
    assert_eq!(queue.len(), RANGE_PARTS_MAX, "bounded");
    queue.pop().unwrap().completer.complete(Err(VolumeError::NoSpace));
    assert!(range.as_mut().poll(&mut context).is_pending(), "the others are still out");
    while let Some(op) = queue.pop() {
        op.completer.complete(Ok(OpOutput::Done));
    }
    assert_eq!(range.as_mut().poll(&mut context), Poll::Ready(Err(VolumeError::NoSpace)));
    assert!(queue.is_empty());
}

#[test]
fn nothing_illegal_reaches_the_driver() {
    let (volume, queue) = open(VolumeInfo { read_only: true, ..info() });
    let size_bytes = volume.info().size_bytes;
    let read = |offset, length: usize| block_on(volume.read(offset, vec![0; length].into())).unwrap_err();
    assert!(matches!(read(512, 4096), VolumeError::Misaligned { .. }));
    assert!(matches!(read(0, 4095), VolumeError::Misaligned { .. }));
    assert!(matches!(read(size_bytes, 4096), VolumeError::OutOfRange { .. }));
    assert!(matches!(read(u64::MAX - 4095, 8192), VolumeError::OutOfRange { .. }));
    assert!(matches!(read(0, (1 << 20) + 4096), VolumeError::TooLong { .. }));
    assert_eq!(block_on(volume.write(0, vec![0; 4096].into())), Err(VolumeError::ReadOnly));
    assert_eq!(block_on(volume.discard(0, 4096)), Err(VolumeError::ReadOnly));
    assert_eq!(block_on(volume.write_zeroes(0, 4096)), Err(VolumeError::ReadOnly));
    assert!(matches!(block_on(volume.buffer(9 << 20)), Err(VolumeError::TooLong { .. })));
    assert!(queue.is_empty());
}

#[test]
fn buffers_are_handed_out_in_the_order_of_coming() {
    let (volume, _queue) = open(info());
    let mut context = Context::from_waker(Waker::noop());
    let all = block_on(volume.buffer(8 << 20)).unwrap();
    let mut large = Box::pin(volume.buffer(8 << 20));
    let mut small = pin!(volume.buffer(4096));
    assert!(large.as_mut().poll(&mut context).is_pending());
    assert!(small.as_mut().poll(&mut context).is_pending());
    drop(all);
    assert!(small.as_mut().poll(&mut context).is_pending(), "no overtaking");
    drop(large);
    assert!(matches!(small.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
}

#[test]
fn a_waiting_buffer_hears_of_a_frame_that_goes_home() {
    let (volume, _queue) = open(info());
    let all = block_on(volume.buffer(8 << 20)).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(volume.buffer(4096)).map(|frame| frame.len()));
        std::thread::sleep(std::time::Duration::from_millis(50));
        drop(all);
        assert_eq!(waiting.join().unwrap(), Ok(4096));
    });
}
