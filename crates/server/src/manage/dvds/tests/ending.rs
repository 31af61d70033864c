//! How derived volumes end, and what is told of those whom they refuse.

use sanwire_buffer::Region;
use sanwire_core::{ClientId, HostAddress, Instant, NexusId, Principal};
use sanwire_device::NexusPorts;
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::vpd::TargetPort;
use sanwire_scsi::{Cdb, Task};

use super::*;

#[test]
fn a_volume_whose_time_is_over_goes_with_what_is_derived_from_it() {
    let (end, until) = near();
    let kept = kept_with("dvd-expiry", &[&format!("fixed=dvd:disk,principal=any,until={until}")]);
    let mut manager = kept.start().unwrap();
    lines(create(&mut manager, NewDvd { until: Some(until), ..new("disk", "cam") }));
    lines(create(&mut manager, new("cam", "part")));
    manager.expire();
    assert_eq!(names(&mut manager).len(), 4, "not before");
    sleep_past(end);
    manager.expire();
    assert_eq!(names(&mut manager), ["disk"]);
    let missing = status(&mut manager).missing;
    assert!(missing.len() == 1 && missing[0].name == "fixed", "{missing:?}");
    assert!(missing[0].reason.contains("its time was over"), "{missing:?}");
    let told = events(&manager);
    assert_eq!(told.iter().filter(|line| line.contains("was over at")).count(), 3, "{told:?}");
    assert!(manager.sought().is_empty(), "what is over does not come again");
    assert!(status(&mut manager).deviations.is_empty());
    manager.into_target().stop().unwrap();
    let mut manager = kept.start().unwrap();
    assert_eq!((names(&mut manager), status(&mut manager).missing.len()), (vec!["disk".to_owned()], 1));
    manager.into_target().stop().unwrap();
}

#[test]
fn what_was_over_while_the_server_was_off_is_forgotten_when_the_clock_may_be_believed() {
    let kept = kept("dvd-over");
    let mut manager = kept.start().unwrap();
    let (end, until) = near();
    lines(create(&mut manager, NewDvd { until: Some(until), ..new("disk", "cam") }));
    lines(create(&mut manager, new("cam", "part")));
    manager.into_target().stop().unwrap();
    sleep_past(end);
    let mut manager = kept.start().unwrap();
    assert_eq!(names(&mut manager), ["disk"]);
    assert_eq!(status(&mut manager).missing.len(), 2, "the clock may be set yet");
    assert!(fs::read_to_string(kept.changes()).unwrap().contains("cam"));
    manager.forget_over();
    assert!(status(&mut manager).missing.is_empty());
    let told = events(&manager);
    assert!(told.len() == 2 && told[0].contains("cam") && told[1].contains("part"), "{told:?}");
    manager.into_target().stop().unwrap();
    // What is left says that it is to be forgotten, until the next start.
    kept.start().unwrap().into_target().stop().unwrap();
    assert!(!fs::read_to_string(kept.changes()).unwrap().contains("cam"));
}

#[test]
fn many_that_end_at_once_are_kept_at_once() {
    let kept = kept_with("dvd-many-ends", &["fixed=dvd:disk,principal=any"]);
    let mut manager = kept.start().unwrap();
    (0..60).for_each(|number| _ = lines(create(&mut manager, new("disk", &format!("d{number}")))));
    // As if all of them had ended when 1970 began.
    let all = names(&mut manager).into_iter().filter(|name| name != "disk");
    all.for_each(|name| manager.expiry.put(&name, Some(1), false));
    // As long as nothing can be kept, what the configuration has ends all the same.
    kept.fill_disk();
    manager.expire();
    assert_eq!((names(&mut manager).len(), status(&mut manager).missing.len()), (61, 1));
    assert!(manager.find("d7").unwrap().1.is_revoked(), "nor does the rest go on with what it has under way");
    fs::remove_dir(kept.changes().with_extension("json.new")).unwrap();
    // Writing what is kept counts as much as looking at a thousand volumes.
    let visits = crate::visits::during(|| manager.expire());
    assert_eq!(names(&mut manager), ["disk"]);
    assert!(visits < 30 * 1024, "{visits}");
    assert_eq!(events(&manager).iter().filter(|line| line.contains("was over at")).count(), 61);
    manager.into_target().stop().unwrap();
    let mut manager = kept.start().unwrap();
    assert_eq!(names(&mut manager), ["disk", "fixed"]);
    manager.into_target().stop().unwrap();
    assert!(!fs::read_to_string(kept.changes()).unwrap().contains("\"d7\""));
}

#[test]
fn what_a_volume_refuses_is_told_now_and_then() {
    let kept = kept("dvd-refuses");
    let mut manager = kept.start().unwrap();
    let principals = vec!["10.0.0.9".into()];
    lines(create(&mut manager, NewDvd { operations: vec!["read".into()], principals, ..new("disk", "cam") }));
    let (lun, _) = manager.find("cam").unwrap();
    let units = Arc::clone(manager.target().units());
    let memory = Region::new(1 << 20).unwrap();
    let address = |host: &str| Some(HostAddress::Ip(host.parse().unwrap()));
    for (nexus, host) in [(7, "10.0.0.9"), (8, "10.0.0.10")] {
        let initiator = TransportId::hyperscsi(ClientId([nexus; 16]));
        let principal = Principal { address: address(host), ..Principal::default() };
        let ports = NexusPorts { initiator, target: TargetPort::default(), principal };
        let nexus = NexusId(nexus.into());
        units.nexus_established(nexus, Arc::new(ports));
        for _ in 0..4 {
            // START STOP UNIT.
            let task = Task {
                lun: Some(lun),
                cdb: Cdb::from([0x1b, 0, 0, 0, 1, 0]),
                data_out: None,
                tells_residual: false,
                data_in_max_bytes: 0,
                may_share: true,
                piece: None,
                receipts: 0,
            };
            drop(units.begin(nexus, task, &memory, Instant::ZERO));
        }
    }
    let refused = |manager: &Manager| {
        let read = manager.target().events().read(None, &EventFilter::default(), Duration::ZERO);
        let told = read.events.into_iter().map(|event| event.what);
        told.filter(|what| matches!(what, Happening::DvdUseRefused { .. })).map(|what| what.to_string()).collect()
    };
    manager.look_for_refusals();
    let told: Vec<String> = refused(&manager);
    assert!(told.len() == 2 && told[0].contains("(not-admitted)"), "{told:?}");
    assert!(told[1].contains("(operation)") && told[1].contains("10.0.0.9"), "{told:?}");
    manager.look_for_refusals();
    assert_eq!(refused(&manager).len(), 2, "nothing is new");
    let Ok(Answer::Metrics(metrics)) = manager.execute(Request::Metrics) else { panic!("the metrics") };
    let line = "sanwire_dvd_refused_total{volume=\"cam\",reason=\"operation\"} ";
    assert!(metrics.as_str().lines().any(|other| other.starts_with(line) && !other.ends_with(" 0")), "{line}");
    manager.into_target().stop().unwrap();
}
