//! Load on a volume, measured: several operations in flight, latency of each, processor time of this process.

mod histogram;
mod order;
mod report;

use std::cell::RefCell;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, TryStreamExt};
use rustix::time::{ClockId, clock_gettime};
use sanwire_buffer::{Frame, Slice};
use sanwire_initiator::{Volume, VolumeError};

use crate::args::{ByteRange, Pattern};
use histogram::Histogram;
use order::Order;

/// What to do.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) block_bytes: u32,
    pub(crate) depth: u16,
    pub(crate) reads_percent: u8,
    pub(crate) pattern: Pattern,
    pub(crate) time: Duration,
    pub(crate) range: ByteRange,
    pub(crate) seed: u64,
}

/// What was measured.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) elapsed: Duration,
    pub(crate) cpu: Duration,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) latency: Histogram,
}

/// What the workers share; they all run on one thread.
struct Shared<'a> {
    volume: &'a Volume,
    load: &'a Load,
    deadline: Instant,
    pattern: Slice,
    order: RefCell<Order>,
    measured: RefCell<Measured>,
}

/// Puts the load on the volume for its time.
///
/// # Errors
/// The first operation that failed ends the measurement.
pub(crate) async fn measure(volume: &Volume, load: &Load) -> Result<Measured, VolumeError> {
    let pattern = order::noise(volume.buffer(load.block_bytes as usize).await?, load.seed).freeze();
    let cpu_before = process_cpu();
    let start = Instant::now();
    let nothing =
        Measured { elapsed: Duration::ZERO, cpu: Duration::ZERO, reads: 0, writes: 0, latency: Histogram::new() };
    let shared = Shared {
        volume,
        load,
        deadline: start + load.time,
        pattern,
        order: RefCell::new(Order::new(load)),
        measured: RefCell::new(nothing),
    };
    let workers: FuturesUnordered<_> = (0..load.depth).map(|_| work(&shared)).collect();
    workers.try_collect::<()>().await?;
    let mut measured = shared.measured.into_inner();
    measured.elapsed = start.elapsed();
    measured.cpu = process_cpu().saturating_sub(cpu_before);
    Ok(measured)
}

/// One operation after the other until the time is over. A worker for whom the client has no buffer left waits until
/// the others end.
async fn work(shared: &Shared<'_>) -> Result<(), VolumeError> {
    let mut frame: Frame = shared.volume.buffer(shared.load.block_bytes as usize).await?;
    let mut started = Instant::now();
    while started < shared.deadline {
        let (offset_bytes, is_read) = shared.order.borrow_mut().next(shared.load);
        if is_read {
            frame = shared.volume.read(offset_bytes, frame).await?;
        } else {
            shared.volume.write(offset_bytes, shared.pattern.clone()).await?;
        }
        let ended = Instant::now();
        let mut measured = shared.measured.borrow_mut();
        measured.latency.record(ended - started);
        *(if is_read { &mut measured.reads } else { &mut measured.writes }) += 1;
        started = ended;
    }
    Ok(())
}

/// Processor time of all threads of this process, user and system.
fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests;
