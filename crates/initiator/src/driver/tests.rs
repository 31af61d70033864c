use std::collections::VecDeque;
use std::sync::Mutex;

use sanwire_buffer::Region;
use sanwire_scsi::{AdditionalSense, Capacity, Cdb, Sense, SenseKey, Status};

use super::*;
use crate::inventory;
use crate::session::Order;
use crate::volume::tests::block_on;
use crate::volume::{BufferPool, Volume, VolumeInfo};

const BLOCK_BYTES: u32 = 512;

/// A device: what it answers to a command, with its data.
type Device = Box<dyn FnMut(&Cdb) -> (Status, Vec<u8>, Vec<u8>) + Send>;

/// A session that is always there, with one device behind it.
struct Scripted {
    device: Device,
    events: VecDeque<Event>,
    orders: u64,
}

impl Session for Scripted {
    fn receive(&mut self, _: Instant) -> usize {
        0
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn transmit(&mut self, _: Instant) -> usize {
        0
    }

    fn order(&mut self, order: Order, _: Instant) -> Result<OrderId, Order> {
        let (status, sense, data) = (self.device)(&order.cdb);
        self.orders += 1;
        let id = OrderId(self.orders);
        let mut data_in = order.data_in;
        let room = data_in.as_mut().map_or(0, |frame| frame.len().min(data.len()));
        if let Some(frame) = &mut data_in {
            frame[..room].copy_from_slice(&data[..room]);
        }
        self.events.push_back(Event::Completed { id, answer: Answer { status, sense }, data_in, data_in_bytes: room });
        Ok(id)
    }

    fn in_transit(&self) -> usize {
        0
    }

    fn hold_after_restart(&mut self) {}

    fn release(&mut self) {}

    fn abandon(&mut self, _: Lun) {}

    fn server(&self) -> Option<ServerInfo> {
        None
    }

    fn disconnect(&mut self, _: Instant) {}

    fn wait(&mut self, _: &Waker, _: Option<Instant>, _: &Clock) -> std::io::Result<()> {
        Ok(())
    }
}

fn driver(device: Device) -> Driver {
    let server = ServerInfo { name: "array".into(), commands_max: 8, transfer_max_bytes: 1 << 20, packet_max_bytes: 0 };
    let connected = Event::Connected { server, resumed: true };
    let session = Scripted { device, events: VecDeque::from([connected]), orders: 0 };
    let mut driver = Driver::new(Box::new(session), Clock::new(), Waker::new().expect("an event descriptor"));
    driver.turn();
    driver
}

/// A handle of unit 0, which the driver serves.
fn open(driver: &mut Driver, size_bytes: u64) -> Volume {
    let contents = inventory::contents(driver, Lun::default()).unwrap_or_else(|error| panic!("{error}"));
    let info = InfoCell::new(VolumeInfo {
        size_bytes,
        block_bytes: BLOCK_BYTES,
        physical_block_bytes: BLOCK_BYTES,
        ..crate::volume::tests::info()
    });
    let queue = OpQueue::new(Arc::new(|| ()));
    let pool = BufferPool::new(Region::new(1 << 20).expect("memory"));
    let volume = Volume::from_queue(info.clone(), &queue, pool);
    let (mark, block_bytes) = (contents.mark, contents.block_bytes);
    driver.serve(Served { lun: Lun::default(), mark, block_bytes, queue, info });
    volume
}

fn refuse(key: SenseKey, reason: AdditionalSense) -> (Status, Vec<u8>, Vec<u8>) {
    (Status::CheckCondition, Sense::new(key, reason).to_fixed(), Vec::new())
}

#[test]
fn a_resize_is_seen_with_the_next_operation() {
    let capacity = |blocks| Capacity {
        blocks,
        block_bytes: BLOCK_BYTES,
        physical_block_exponent: 0,
        provisioning_management: false,
        reads_zeroes: false,
    };
    let blocks = Arc::new(Mutex::new(1000));
    let mut told_blocks = 1000;
    let now_blocks = Arc::clone(&blocks);
    let mut driver = driver(Box::new(move |cdb| {
        let blocks = *now_blocks.lock().expect("no panic");
        match cdb.operation_code() {
            0x9e => (Status::Good, Vec::new(), capacity(blocks).to_sixteen().to_vec()),
            0x12 => refuse(SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_CDB),
            _ if blocks != told_blocks => {
                told_blocks = blocks;
                refuse(SenseKey::UnitAttention, AdditionalSense::CAPACITY_DATA_HAS_CHANGED)
            }
            _ => (Status::Good, Vec::new(), Vec::new()),
        }
    }));
    let volume = open(&mut driver, 1000 * u64::from(BLOCK_BYTES));
    *blocks.lock().expect("no panic") = 2000;
    let serving = std::thread::spawn({
        let volume = volume.clone();
        move || block_on(volume.flush())
    });
    while !serving.is_finished() {
        driver.turn();
    }
    assert_eq!(serving.join().expect("no panic"), Ok(()));
    assert_eq!(volume.info().size_bytes, 2000 * u64::from(BLOCK_BYTES));
}
