//! A volume in memory, served by a thread of its own until its last handle is gone.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::Lun;
use sanwire_initiator::{
    AllocatedRun, BufferPool, InfoCell, Op, OpKind, OpOutput, OpQueue, Volume, VolumeError, VolumeInfo, WireUnit,
};
use sanwire_testing::{is_installed, skip, this_test};

use crate::loop_device::{DeviceJob, perform};

pub(crate) struct RamVolume {
    pub(crate) size_bytes: usize,
    pub(crate) block_bytes: u32,
    pub(crate) transfer_max_bytes: u32,
    pub(crate) region_bytes: usize,
    pub(crate) read_only: bool,
    /// Whether WRITE ZEROES is supported.
    pub(crate) zeroes: bool,
    /// Every operation is told of when it begins, and waits for a word, or that there will be none.
    pub(crate) gate: Option<Gate>,
    /// Every operation takes this long.
    pub(crate) delay: Duration,
    /// Reads that touch this byte fail.
    pub(crate) bad_byte: Option<u64>,
    /// The first of what must be stable is told that writes were lost.
    pub(crate) has_lost_writes: bool,
}

/// The ends that a volume has of two channels.
pub(crate) struct Gate {
    pub(crate) begun: mpsc::Sender<()>,
    pub(crate) go_on: mpsc::Receiver<()>,
}

impl Default for RamVolume {
    fn default() -> Self {
        RamVolume {
            size_bytes: 16 << 20,
            block_bytes: 4096,
            transfer_max_bytes: 1 << 20,
            region_bytes: 16 << 20,
            read_only: false,
            zeroes: true,
            gate: None,
            delay: Duration::ZERO,
            bad_byte: None,
            has_lost_writes: false,
        }
    }
}

impl RamVolume {
    pub(crate) fn start(mut self) -> Volume {
        let (sender, bell) = mpsc::channel();
        let queue = OpQueue::new(Arc::new(move || {
            let _ = sender.send(());
        }));
        let pool = BufferPool::new(Region::new(self.region_bytes).unwrap());
        let volume = Volume::from_queue(InfoCell::new(self.info()), &queue, pool);
        std::thread::spawn(move || {
            let mut disk = vec![0; self.size_bytes];
            loop {
                while let Some(op) = queue.pop() {
                    self.serve(op, &mut disk);
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

    fn info(&self) -> VolumeInfo {
        VolumeInfo {
            name: "disk".into(),
            lun: Lun::default(),
            size_bytes: self.size_bytes as u64,
            block_bytes: self.block_bytes,
            physical_block_bytes: self.block_bytes,
            read_only: self.read_only,
            discards: true,
            transfer_max_bytes: self.transfer_max_bytes,
            transfer_limit_bytes: self.transfer_max_bytes,
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

    fn serve(&mut self, op: Op, disk: &mut [u8]) {
        // Whether there is news is asked at any time: it disturbs nothing.
        if let OpKind::Check = op.kind {
            return op.completer.complete(Ok(OpOutput::Done));
        }
        if let Some(gate) = &self.gate {
            // A caller that has dropped the other ends waits for nothing.
            let _ = (gate.begun.send(()), gate.go_on.recv());
        }
        if !self.delay.is_zero() {
            std::thread::sleep(self.delay);
        }
        let mut result = Ok(OpOutput::Done);
        match op.kind {
            OpKind::Read { offset_bytes, mut buffer } => {
                let range = offset_bytes..offset_bytes + buffer.len() as u64;
                if self.bad_byte.is_some_and(|bad| range.contains(&bad)) {
                    result = Err(VolumeError::Medium { offset_bytes, sense: "unrecovered read error".into() });
                } else {
                    buffer.copy_from_slice(&disk[range.start as usize..range.end as usize]);
                    result = Ok(OpOutput::Frame(buffer));
                }
            }
            OpKind::Write { stable: true, .. } | OpKind::Flush if std::mem::take(&mut self.has_lost_writes) => {
                result = Err(VolumeError::WritesLost { server: "memory".into() });
            }
            OpKind::Write { offset_bytes, data, .. } => {
                disk[offset_bytes as usize..][..data.len()].copy_from_slice(&data);
            }
            OpKind::Copy { .. } => result = Err(VolumeError::Unsupported),
            OpKind::WriteZeroes { .. } if !self.zeroes => result = Err(VolumeError::Unsupported),
            OpKind::WriteZeroes { offset_bytes, length_bytes } | OpKind::Discard { offset_bytes, length_bytes } => {
                disk[offset_bytes as usize..][..length_bytes as usize].fill(0);
            }
            OpKind::Flush | OpKind::Check => {}
            OpKind::Allocation { offset_bytes, length_bytes } => {
                result = Ok(OpOutput::Allocation(allocation(disk, offset_bytes, length_bytes)));
            }
        }
        op.completer.complete(result);
    }
}

/// As a thin volume that gives back each block of zeroes: two runs at the most at once.
fn allocation(disk: &[u8], offset_bytes: u64, length_bytes: u64) -> Vec<AllocatedRun> {
    let blocks = disk[offset_bytes as usize..][..length_bytes as usize].chunks(4096);
    let mut runs: Vec<AllocatedRun> = Vec::new();
    for block in blocks {
        let is_mapped = block.iter().any(|byte| *byte != 0);
        let count = runs.len();
        match runs.last_mut() {
            Some(run) if run.is_mapped == is_mapped => run.length_bytes += block.len() as u64,
            _ if count == 2 => break,
            _ => runs.push(AllocatedRun { length_bytes: block.len() as u64, is_mapped }),
        }
    }
    runs
}

/// A directory that is removed with what is in it.
pub(crate) struct TestDirectory(std::path::PathBuf);

impl TestDirectory {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sanwire-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        TestDirectory(path)
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whether a program is installed; says so when it is not, as the caller then skips its test.
pub(crate) fn have(program: &str) -> bool {
    let found = is_installed(program);
    if !found {
        skip(&this_test(), &format!("the program {program} is not installed"));
    }
    found
}

/// The helper of attachments in tests: this very program, which runs [`device_job`].
pub(crate) fn helper(job: DeviceJob, device: &std::path::Path) -> std::process::Command {
    let mut command = std::process::Command::new("/proc/self/exe");
    command.args(["--ignored", "--exact", "--nocapture", "test_volume::device_job"]);
    command.env("SANWIRE_TEST_JOB", format!("{job:?}")).env("SANWIRE_TEST_DEVICE", device);
    command
}

#[test]
#[ignore = "runs in a child process"]
fn device_job() {
    let Some(device) = std::env::var_os("SANWIRE_TEST_DEVICE") else { return };
    let asked = std::env::var("SANWIRE_TEST_JOB").unwrap_or_default();
    let jobs = [DeviceJob::Check, DeviceJob::WriteBack, DeviceJob::Grow];
    perform(jobs.into_iter().find(|job| format!("{job:?}") == asked).unwrap(), device.as_ref());
}

/// Whether this test can attach; says so when it cannot, as the caller then skips its test.
pub(crate) fn can_attach(block_device: bool) -> bool {
    if !std::path::Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        skip(&this_test(), "it takes root and /dev/fuse");
        return false;
    }
    if !block_device {
        return true;
    }
    // Not by trying to attach: whatever else goes wrong there is a failure.
    let free = std::process::Command::new("losetup").arg("--find").output();
    let found = free.is_ok_and(|output| output.status.success());
    if !found {
        skip(&this_test(), "no loop device can be had here");
    }
    found
}
