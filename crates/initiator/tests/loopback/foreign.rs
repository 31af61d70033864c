//! iSCSI targets of others, with habits that a client must bear.

mod shrinking;
mod target;

use std::sync::{Arc, Mutex};

use sanwire_initiator::Client;
use sanwire_scsi::vpd::{BlockLimits, TargetPort, page};
use sanwire_scsi::{
    AdditionalSense, Capacity, Identity, Reply, Sense, SenseKey, Status, Task, inquiry, operation_code,
};

use crate::options;

const BLOCKS: u64 = 2048;

/// A disk of zeroes, by the pages that it has. Any other it refuses with sense data that says nothing.
#[derive(Clone)]
struct Disk {
    pages: Vec<u8>,
    /// It knows the long form of READ CAPACITY.
    knows_sixteen: bool,
    /// The codes of the pages that it was asked for.
    asked: Arc<Mutex<Vec<u8>>>,
}

fn good(bytes: impl Into<Vec<u8>>) -> Reply {
    Reply::good(Some(bytes.into().into()))
}

impl Disk {
    fn new(pages: &[u8]) -> Disk {
        Disk { pages: pages.to_vec(), knows_sixteen: true, asked: Arc::default() }
    }

    fn answer(&self, task: &Task) -> Reply {
        match task.cdb.operation_code() {
            operation_code::INQUIRY if task.cdb[1] & 1 == 1 => self.page(task.cdb[2]),
            operation_code::INQUIRY => good(inquiry::standard_inquiry(false)),
            operation_code::REPORT_LUNS => good([0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            // READ CAPACITY (16) and (10), MODE SENSE (6), READ (10) and (16).
            0x9e if !self.knows_sixteen => refused(),
            0x9e => good(capacity().to_sixteen()),
            0x25 => good(capacity().to_ten()),
            0x1a => good([3, 0, 0, 0]),
            0x28 | 0x88 => good(vec![0; 4096]),
            _ => Reply::good(None),
        }
    }

    fn page(&self, code: u8) -> Reply {
        self.asked.lock().unwrap().push(code);
        let list = [&[0, 0, 0, self.pages.len() as u8][..], &self.pages].concat();
        match code {
            _ if !self.pages.contains(&code) => refused(),
            page::SUPPORTED_PAGES => good(list),
            page::DEVICE_IDENTIFICATION => {
                good(Identity::new("null0", [9; 16]).unwrap().to_page(&TargetPort::default()))
            }
            page::BLOCK_LIMITS => good(BlockLimits { maximum_transfer: 256, ..BlockLimits::default() }.to_page()),
            // It lists this one, but does not know it.
            _ => refused(),
        }
    }
}

fn capacity() -> Capacity {
    Capacity {
        blocks: BLOCKS,
        block_bytes: 512,
        physical_block_exponent: 0,
        provisioning_management: false,
        reads_zeroes: false,
    }
}

/// As SPDK refuses pages that a volume without UNMAP does not have.
fn refused() -> Reply {
    let sense = Sense::new(SenseKey::NoSense, AdditionalSense::NONE).to_fixed();
    Reply { sense, ..Reply::bare(Status::CheckCondition) }
}

/// The client opens and reads the disk; the pages that it has asked for.
fn is_used(disk: &Disk) -> Vec<u8> {
    let answering = disk.clone();
    let portal = target::start(move |task| Some(answering.answer(task)));
    let url = format!("iscsi://{portal}/{}/0", target::NAME).parse().unwrap();
    let mut client = Client::connect(&url, &options()).unwrap();
    let volume = client.open("0").unwrap();
    let info = volume.info();
    assert_eq!((info.size_bytes, info.block_bytes, info.discards), (BLOCKS * 512, 512, false));
    let back = client.block_on(async { volume.read(0, volume.buffer(4096).await?).await }).unwrap();
    assert!(back.iter().all(|byte| *byte == 0));
    disk.asked.lock().unwrap().clone()
}

#[test]
fn pages_that_a_unit_does_not_list_are_not_asked_for() {
    let asked = is_used(&Disk::new(&[page::SUPPORTED_PAGES, page::DEVICE_IDENTIFICATION, page::BLOCK_LIMITS]));
    assert!(asked.contains(&page::BLOCK_LIMITS), "{asked:x?}");
    assert!(!asked.contains(&page::LOGICAL_BLOCK_PROVISIONING), "{asked:x?}");
}

#[test]
fn a_page_that_is_refused_is_not_there_whatever_the_reason() {
    let listed = [page::SUPPORTED_PAGES, page::DEVICE_IDENTIFICATION, page::LOGICAL_BLOCK_PROVISIONING];
    assert!(is_used(&Disk::new(&listed)).contains(&page::LOGICAL_BLOCK_PROVISIONING), "it lists what it does not know");
    is_used(&Disk::new(&[page::DEVICE_IDENTIFICATION]));
}

#[test]
fn the_short_form_of_read_capacity_does_when_the_long_one_is_refused_whatever_the_reason() {
    is_used(&Disk { knows_sixteen: false, ..Disk::new(&[page::SUPPORTED_PAGES, page::DEVICE_IDENTIFICATION]) });
}
