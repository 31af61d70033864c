//! What logical units and nexuses cost: `cargo run --release -p sanwire-device --example scale [UNITS] [NEXUSES]`.
//!
//! It prints the resident memory of each unit, of each nexus, and of each pair of both that has used one another, and the time of a
//! login, of the first and of a later command, and of a unit that is added while all are there.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sanwire_buffer::Region;
use sanwire_core::limits::LUNS_MAX;
use sanwire_core::{ClientId, Lun, NexusId, Principal};
use sanwire_device::{LogicalUnit, LogicalUnits, NexusPorts, Progress, UnitOptions};
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::vpd::TargetPort;
use sanwire_scsi::{Identity, Task, build};
use sanwire_store::{RamStore, Store};

/// Of the units so many are used by each nexus.
const USED: usize = 16;

fn main() {
    let argument = |at: usize| std::env::args().nth(at).and_then(|text| text.parse::<usize>().ok());
    let (units_max, nexuses_max) = (argument(1).unwrap_or(10_000).min(LUNS_MAX - 1), argument(2).unwrap_or(1000));
    let store: Arc<dyn Store> = Arc::new(RamStore::new(1 << 20, 512));
    let (whole, memory) = (Arc::new(LogicalUnits::new()), Region::new(1 << 20).expect("a region of 1 MiB"));
    Cost::of(units_max, |number| add(&whole, number, &store)).print("unit");
    let mut parts = Vec::new();
    let logins = Cost::of(nexuses_max, |number| {
        let part = LogicalUnits::part_of(Arc::clone(&whole));
        part.show_all();
        part.nexus_established(NexusId(number as u64), ports(number));
        parts.push(part);
    });
    logins.print("nexus, with a view of its own that shows all");

    let ready = |at: usize| {
        let number = at % nexuses_max;
        let task = task((at / nexuses_max + number) % units_max);
        let progress = parts[number].begin(NexusId(number as u64), task, &memory, sanwire_core::Instant::ZERO);
        assert!(matches!(progress, Progress::Done(_)), "a unit answers by itself whether it is ready");
    };
    let pairs = nexuses_max * USED;
    Cost::of(pairs, ready).print("pair, with its first command");
    Cost::of(pairs, ready).print("later command");
    let added = Cost::of(1, |_| {
        add(&whole, units_max, &store);
        parts.iter().for_each(LogicalUnits::show_all);
    });
    added.print("unit added, and shown to all");
    Cost::of(pairs, ready).print("command that tells of it");
    Cost::of(nexuses_max, |number| parts[number].nexus_lost(NexusId(number as u64))).print("nexus lost");
}

/// What something costs that is done so often.
struct Cost {
    times: usize,
    took: Duration,
    bytes: i64,
}

impl Cost {
    fn of(times: usize, mut work: impl FnMut(usize)) -> Cost {
        let (before, begun) = (resident_bytes(), Instant::now());
        (0..times).for_each(&mut work);
        Cost { times, took: begun.elapsed(), bytes: resident_bytes() - before }
    }

    fn print(&self, what: &str) {
        let each = |total: f64| total / self.times.max(1) as f64;
        let (bytes, time) = (each(self.bytes as f64), each(self.took.as_secs_f64() * 1e6));
        println!("{:>8} x {what}: {time:.3} us, {bytes:.0} bytes each", self.times);
    }
}

fn add(units: &LogicalUnits, number: usize, store: &Arc<dyn Store>) {
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&number.to_be_bytes());
    let identity = Identity::new(&format!("volume-{number}"), uuid).expect("a name");
    let unit = LogicalUnit::new(identity, Arc::clone(store), UnitOptions::default()).expect("a disk");
    units.add(lun(number), unit).expect("the number is free");
}

fn lun(number: usize) -> Lun {
    u16::try_from(number).ok().and_then(Lun::new).expect("a number of 14 bits")
}

fn ports(number: usize) -> Arc<NexusPorts> {
    let mut client = [0; 16];
    client[..8].copy_from_slice(&number.to_be_bytes());
    Arc::new(NexusPorts {
        initiator: TransportId::hyperscsi(ClientId(client)),
        target: TargetPort::default(),
        principal: Principal::default(),
    })
}

fn task(number: usize) -> Task {
    Task {
        lun: Some(lun(number)),
        cdb: build::test_unit_ready(),
        data_out: None,
        tells_residual: false,
        data_in_max_bytes: 0,
        may_share: true,
        piece: None,
        receipts: 0,
    }
}

/// Of this process.
fn resident_bytes() -> i64 {
    let pages = fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.as_deref().and_then(|text| text.split(' ').nth(1)?.parse::<i64>().ok());
    pages.unwrap_or(0) * 4096
}
