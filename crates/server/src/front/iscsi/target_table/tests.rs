use std::sync::Weak;

use sanwire_device::UnitOptions;
use sanwire_scsi::Identity;
use sanwire_store::RamStore;

use super::*;
use crate::allow::AllowList;

fn lun(number: u16) -> Lun {
    Lun::new(number).unwrap()
}

fn volumes(names: &[&str]) -> LogicalUnits {
    let units = LogicalUnits::new();
    for (name, number) in names.iter().zip(0..) {
        let identity = Identity::new(name, [number as u8; 16]).unwrap();
        let store = Arc::new(RamStore::new(1 << 20, 512));
        units.add(lun(number), LogicalUnit::new(identity, store, UnitOptions::default()).unwrap()).unwrap();
    }
    units
}

fn target(name: &str, units: &[(u16, &str)]) -> TargetNodeConfig {
    let name = format!("iqn.2026-11.org.sanwire:{name}").parse().unwrap();
    let units = units.iter().map(|(number, volume)| (lun(*number), (*volume).to_owned())).collect();
    TargetNodeConfig { name, units, ..TargetNodeConfig::of_volume("a", AllowList::default()).unwrap() }
}

fn nobody() -> Neighbours {
    Neighbours::new(&Weak::new())
}

fn numbers(export: &TargetNode) -> Vec<(u16, String)> {
    export.units.iter().iter().map(|(lun, disk)| (lun.number(), disk.identity().name().to_owned())).collect()
}

/// The table with these targets and no others.
fn with(
    table: &TargetNodeTable,
    configs: Vec<TargetNodeConfig>,
    volumes: &LogicalUnits,
) -> Result<(TargetNodeTable, Departures), TargetNodeError> {
    let (table, departures, _) = table.with(table.changes_to(configs)?, volumes, &nobody())?;
    Ok((table, departures))
}

#[test]
fn what_stays_is_not_touched_by_a_change() {
    let volumes = volumes(&["a", "b", "c"]);
    let configs = vec![target("one", &[(0, "a"), (1, "b")]), target("two", &[(0, "b")])];
    let (before, departures) = with(&TargetNodeTable::default(), configs, &volumes).unwrap();
    assert_eq!(departures, Departures::default());
    let one = Arc::clone(before.by_name(&target("one", &[]).name).unwrap());
    assert_eq!(numbers(&one), [(0, "a".into()), (1, "b".into())]);

    let configs = vec![target("three", &[(7, "a")]), target("one", &[(0, "a"), (1, "c"), (2, "b")])];
    let (after, Departures { gone, moved, for_others }) = with(&before, configs, &volumes).unwrap();
    let same = after.by_id(one.id).unwrap();
    assert!(Arc::ptr_eq(&same.units, &one.units), "its sessions go on");
    assert_eq!(numbers(same), [(0, "a".into()), (1, "c".into()), (2, "b".into())]);
    assert_eq!(gone, [before.by_name(&target("two", &[]).name).unwrap().id]);
    assert_eq!((moved, for_others), (vec![], vec![]));
    let third = after.by_name(&target("three", &[]).name).unwrap();
    assert!(before.by_id(third.id).is_none(), "a number is not used again");
}

#[test]
fn a_target_that_sends_its_initiators_elsewhere_from_now_on_has_moved() {
    let volumes = volumes(&["a"]);
    let to =
        |address: &str| TargetNodeConfig { redirect: Some((address.to_owned(), false)), ..target("one", &[(0, "a")]) };
    let moved = |before: &TargetNodeTable, after| {
        let (table, Departures { gone, moved, .. }) = with(before, vec![after], &volumes).unwrap();
        assert_eq!(gone, []);
        (table, moved.len())
    };
    let (table, new) = moved(&TargetNodeTable::default(), to("192.0.2.1"));
    let (table, same) = moved(&table, to("192.0.2.1"));
    let (table, other) = moved(&table, to("192.0.2.2"));
    let (table, back) = moved(&table, target("one", &[(0, "a")]));
    let (_, away) = moved(&table, to("192.0.2.1"));
    assert_eq!([new, same, other, back, away], [0, 0, 1, 0, 1]);
}

#[test]
fn a_wrong_configuration_changes_nothing() {
    let volumes = volumes(&["a", "b"]);
    let (table, _) = with(&TargetNodeTable::default(), vec![target("one", &[(0, "a")])], &volumes).unwrap();
    for (configs, part) in [
        (vec![target("one", &[]), target("two", &[(3, "x")])], "logical unit 3 is to be volume x, which is not served"),
        (vec![target("one", &[]), target("one", &[(0, "a")])], "two targets are called iqn.2026-11.org.sanwire:one"),
        (vec![target("one", &[(0, "b"), (1, "b")])], "volume b has two numbers"),
    ] {
        let error = with(&table, configs, &volumes).map(drop).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert_eq!(numbers(table.iter().next().unwrap()), [(0, "a".into())]);
    }
}

#[test]
fn only_targets_that_are_named_are_changed() {
    let volumes = volumes(&["a", "b"]);
    let configs = vec![target("one", &[(0, "a")]), target("two", &[(0, "b")])];
    let (before, _) = with(&TargetNodeTable::default(), configs, &volumes).unwrap();
    let [one, two] = ["one", "two"].map(|label| target(label, &[]).name);
    let wider = target("one", &[(0, "a"), (1, "b")]);
    let changes = TargetChanges::from([(one.clone(), Some(wider))]);
    assert_eq!(before.new_units(&changes), [(&one, "b")]);
    let (after, departures, _) = before.with(changes, &volumes, &nobody()).unwrap();
    assert_eq!(departures, Departures::default());
    assert_eq!(numbers(after.by_name(&one).unwrap()), [(0, "a".into()), (1, "b".into())]);
    assert!(Arc::ptr_eq(after.by_name(&two).unwrap(), before.by_name(&two).unwrap()));
    let (left, Departures { gone, .. }, _) =
        after.with(TargetChanges::from([(one.clone(), None)]), &volumes, &nobody()).unwrap();
    assert_eq!(gone, [before.by_name(&one).unwrap().id]);
    assert!(left.by_name(&one).is_none() && left.iter().count() == 1 && left.by_id(gone[0]).is_none());
}

/// Its initiators must not go on with what was removed under that name.
#[test]
fn a_volume_that_was_removed_is_not_taken_for_one_of_the_same_name_and_number() {
    let volumes = volumes(&["a", "b"]);
    let configs = || vec![target("one", &[(0, "a"), (1, "b")])];
    let (before, _) = with(&TargetNodeTable::default(), configs(), &volumes).unwrap();
    let (removed, other) = (volumes.remove(lun(0)).unwrap(), volumes.get(lun(1)).unwrap());
    removed.stalls().give_up();
    let identity = Identity::new("a", [9; 16]).unwrap();
    let store = Arc::new(RamStore::new(1 << 20, 512));
    let new = volumes.add(lun(0), LogicalUnit::new(identity, store, UnitOptions::default()).unwrap()).unwrap();
    let (after, _) = with(&before, configs(), &volumes).unwrap();
    let units = &after.iter().next().unwrap().units;
    assert!(Arc::ptr_eq(&units.get(lun(0)).unwrap(), &new), "the removed one is served on");
    assert!(Arc::ptr_eq(&units.get(lun(1)).unwrap(), &other));
}
