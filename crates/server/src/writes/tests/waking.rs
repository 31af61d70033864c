//! Commands that wait for a tenure, and who wakes them.

use std::sync::mpsc;

use sanwire_buffer::Region;
use sanwire_core::{ClientId, Lun, NexusId, Principal};
use sanwire_device::{LogicalUnit, LogicalUnits, NexusPorts, Progress, UnitOptions, Waiting};
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::vpd::TargetPort;
use sanwire_scsi::{Extent, Identity, Task, build};
use sanwire_store::{CompletionQueue, StoreSpec};

use super::*;

/// A disk with this initiator, whose tenures are kept there, or cannot be, and a write of its that waits for its tenure.
fn first_write(state: &State, fails: bool) -> (LogicalUnits, Region, Waiting) {
    let (units, memory) = (LogicalUnits::new(), Region::new(1 << 20).unwrap());
    let store = "ram:1M".parse::<StoreSpec>().unwrap().open().unwrap();
    let options = UnitOptions { volatility: Some(state.open("a", UUID, 1)), ..UnitOptions::default() };
    let disk = LogicalUnit::new(Identity::new("disk", UUID).unwrap(), store, options).unwrap();
    units.add(Lun::default(), disk).unwrap();
    let (nexus, initiator) = (NexusId(1), TransportId::hyperscsi(ClientId([1; 16])));
    units.nexus_established(
        nexus,
        Arc::new(NexusPorts { initiator, target: TargetPort::default(), principal: Principal::default() }),
    );
    units.name_writer(nexus, [1; 16]);
    let run = |cdb, data: Option<Vec<u8>>| {
        let task = Task {
            lun: Some(Lun::default()),
            cdb,
            data_out: data.map(Into::into),
            tells_residual: false,
            piece: None,
            receipts: 0,
            data_in_max_bytes: 255,
            may_share: true,
        };
        units.begin(nexus, task, &memory, sanwire_core::Instant::ZERO)
    };
    assert!(matches!(run(build::test_unit_ready(), None), Progress::Done(_)), "its unit attention");
    assert!(matches!(run(build::write_verifier(255), None), Progress::Done(_)));
    if fails {
        state.obstruct(&state.tenure_path());
    }
    let write = run(build::write_16(Extent { lba: 0, blocks: 1 }, false), Some(vec![1; 512]));
    let Progress::Wait(waiting) = write else { panic!("{write:?}") };
    (units, memory, waiting)
}

#[test]
fn who_waits_for_a_tenure_is_woken_when_it_is_durable_or_fails() {
    for fails in [false, true] {
        let state = State::new(if fails { "woken-in-vain" } else { "woken" });
        let (units, memory, mut waiting) = first_write(&state, fails);
        let (sender, woken) = mpsc::channel();
        let driver = CompletionQueue::new(move || _ = sender.send(()));
        // Nobody looks but who is woken.
        let ended = loop {
            waiting.wake(&driver);
            match units.retry(waiting, &memory) {
                Progress::Wait(on) => waiting = on,
                ended => break ended,
            }
            woken.recv_timeout(Duration::from_secs(60)).expect("it is woken");
        };
        // Where it fails, the tenure that nobody has is not given, and anybody may write.
        assert!(matches!(ended, Progress::Store(..)), "{fails}: {ended:?}");
        assert_eq!(state.tenure().is_some_and(|tenure| tenure.writer == [1; 16]), !fails);
    }
}
