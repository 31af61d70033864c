use std::sync::Arc;
use std::thread;

use sanwire_device::{LogicalUnit, UnitOptions, Volatility};
use sanwire_scsi::Identity;
use sanwire_store::StoreSpec;

use super::{Content, side_by_side, take};
use crate::manage::pools::tests::{ask, start};
use crate::manage::testing::Kept;
use crate::manage::{Answer, Request};
use crate::pools::PoolError;
use crate::pools::testing::copy_files;

fn snapshot(volumes: &[&str], name: &str) -> Request {
    let volumes = volumes.iter().map(|volume| (*volume).to_owned()).collect();
    Request::Snapshot { volumes, name: name.into(), protected: false }
}

/// A disk that takes its time takes it once for all of them.
#[test]
fn the_volumes_of_a_group_are_taken_side_by_side() {
    let files = copy_files();
    let kept = Kept::new("side-by-side", &["a=pool:,size=1M", "b=pool:,size=1M", "c=pool:,size=1M"]);
    let mut manager = start(&kept).unwrap();
    files.hang.at(Some("copy"));
    let most = thread::scope(|scope| {
        let taking = scope.spawn(|| ask(&mut manager, snapshot(&["a", "b", "c"], "one")));
        while files.hang.waiting() < 3 && !taking.is_finished() {
            thread::yield_now();
        }
        let most = files.hang.waiting();
        files.hang.at(None);
        taking.join().unwrap().unwrap();
        most
    });
    assert_eq!(most, 3);
    let Ok(Answer::Snapshots(taken)) = ask(&mut manager, Request::Snapshots { volume: None }) else { panic!("they") };
    assert_eq!(taken.len(), 3);
    manager.into_target().stop().unwrap();
}

/// The kernel tells of what is lost once: to whom it is told, others have it told by him.
#[test]
fn what_a_flush_for_a_snapshot_loses_is_told_to_those_who_wrote_it() {
    copy_files();
    let kept = Kept::new("lost", &["a=pool:,size=1M"]);
    let mut manager = start(&kept).unwrap();
    let store = "ram:1M,error=flush".parse::<StoreSpec>().unwrap().open().unwrap();
    let volatility = Some(Volatility { verifier: [1; 16], has_failed: false, tenure: None, keeper: None });
    let options = UnitOptions { volatility, ..UnitOptions::default() };
    let unit = LogicalUnit::new(Identity::new("a", [7; 16]).unwrap(), store, options).unwrap();
    let content = Content { unit: Some(Arc::new(unit)), ..manager.content("a").unwrap() };
    let taken = [(content.clone(), "a@one".parse().unwrap())];
    let refused = take(&taken, false, &Arc::new(manager.busy.begin()));
    assert!(matches!(refused, Err(PoolError::Failed { action: "flush", .. })), "{refused:?}");
    assert!(content.unit.unwrap().has_failed_flushes());
    assert_eq!(ask(&mut manager, Request::Snapshots { volume: None }), Ok(Answer::Snapshots(Vec::new())));
    manager.into_target().stop().unwrap();
}

#[test]
fn all_of_many_are_done_or_an_error_is_told() {
    let numbers: Vec<usize> = (0..100).collect();
    let failed = |number: &usize| match number {
        77 => Err(PoolError::Silent("77".into())),
        _ => Ok(()),
    };
    assert!(side_by_side(&numbers, |_| Ok(())).is_ok() && side_by_side(&[], failed).is_ok());
    assert!(matches!(side_by_side(&numbers, failed), Err(PoolError::Silent(_))));
}
