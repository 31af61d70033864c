//! A target that comes back with units that take less at once.

use std::sync::{Arc, Mutex};

use sanwire_buffer::Slice;
use sanwire_initiator::Client;
use sanwire_scsi::vpd::{BlockLimits, page};
use sanwire_scsi::{AdditionalSense, Extent, Reply, Sense, SenseKey, Status, Task, operation_code};

use super::{BLOCKS, Disk, good, target};
use crate::options;

const BLOCK_BYTES: usize = 512;

/// A disk that ends its connection with a transfer, and takes less after that.
struct Shrinking {
    disk: Disk,
    content: Vec<u8>,
    blocks_max: u32,
    /// What was transferred, in blocks.
    transfers: Vec<u32>,
    /// The code of the transfer that ends one.
    ends_at: u8,
}

impl Shrinking {
    /// `None`: the connection ends.
    fn answer(&mut self, task: &Task) -> Option<Reply> {
        let code = task.cdb.operation_code();
        if code == operation_code::INQUIRY && task.cdb[1] & 1 == 1 && task.cdb[2] == page::BLOCK_LIMITS {
            let limits = BlockLimits { maximum_transfer: self.blocks_max, ..BlockLimits::default() };
            return Some(good(limits.to_page()));
        }
        let extent = match code {
            // READ and WRITE (16).
            0x88 | 0x8a => extent(task),
            _ => return Some(self.disk.answer(task)),
        };
        if code == self.ends_at {
            (self.ends_at, self.blocks_max) = (0, 64);
            return None;
        }
        if extent.blocks > self.blocks_max {
            let sense = Sense::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_CDB).to_fixed();
            return Some(Reply { sense, ..Reply::bare(Status::CheckCondition) });
        }
        self.transfers.push(extent.blocks);
        let at = extent.lba as usize * BLOCK_BYTES;
        let place = &mut self.content[at..at + extent.blocks as usize * BLOCK_BYTES];
        Some(match &task.data_out {
            Some(data) => {
                data.copy_to(place);
                Reply::good(None)
            }
            None => good(&*place),
        })
    }
}

fn extent(task: &Task) -> Extent {
    let lba = u64::from_be_bytes(task.cdb[2..10].try_into().unwrap());
    Extent { lba, blocks: u32::from_be_bytes(task.cdb[10..14].try_into().unwrap()) }
}

#[test]
fn what_is_under_way_when_a_target_comes_back_with_units_that_take_less_is_done_in_parts() {
    for ends_at in [0x8a, 0x88] {
        let disk = Disk::new(&[page::SUPPORTED_PAGES, page::DEVICE_IDENTIFICATION, page::BLOCK_LIMITS]);
        let content = vec![0; BLOCKS as usize * BLOCK_BYTES];
        let shrinking = Shrinking { disk, content, blocks_max: 256, transfers: Vec::new(), ends_at };
        let disk = Arc::new(Mutex::new(shrinking));
        let answering = Arc::clone(&disk);
        let portal = target::start(move |task| answering.lock().unwrap().answer(task));
        let url = format!("iscsi://{portal}/{}/0", target::NAME).parse().unwrap();
        let mut client = Client::connect(&url, &options()).unwrap();
        let volume = client.open("0").unwrap();
        let longest = volume.info().transfer_max_bytes as usize;
        assert_eq!(longest, 256 * BLOCK_BYTES);
        let data = Slice::from((0..longest).map(|at| (at / 512 + at) as u8).collect::<Vec<_>>());
        client.block_on(async {
            volume.write(0, data.clone()).await.unwrap();
            let back = volume.read(0, volume.buffer(longest).await.unwrap()).await.unwrap();
            assert!(*back == *data);
        });
        assert_eq!(volume.info().transfer_max_bytes as usize, 64 * BLOCK_BYTES);
        let transfers = std::mem::take(&mut disk.lock().unwrap().transfers);
        let whole: &[u32] = if ends_at == 0x88 { &[256] } else { &[] };
        let parts = if ends_at == 0x88 { 4 } else { 8 };
        assert_eq!(transfers, [whole, &vec![64; parts]].concat());
    }
}
