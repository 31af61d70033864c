use std::fs;
use std::net::IpAddr;

use sanwire_core::Lun;
use sanwire_device::{LogicalUnit, UnitOptions};
use sanwire_hyperscsi::Admission;
use sanwire_scsi::Identity;
use sanwire_store::RamStore;

use super::*;
use crate::allow::AllowRule;

const ALICE: ClientId = ClientId([0xa1; 16]);
const BOB: ClientId = ClientId([0xb0; 16]);

fn anywhere() -> Peer {
    Peer::Udp(("203.0.113.9".parse::<IpAddr>().unwrap(), 5674).into())
}

fn volumes(names: &[&str]) -> Arc<LogicalUnits> {
    let units = Arc::new(LogicalUnits::new());
    for (name, number) in names.iter().zip(0..) {
        let identity = Identity::new(name, [number as u8; 16]).unwrap();
        let disk = LogicalUnit::new(identity, Arc::new(RamStore::new(1 << 20, 512)), UnitOptions::default()).unwrap();
        units.add(Lun::new(number).unwrap(), disk).unwrap();
    }
    units
}

fn terms(clients: &[ClientConfig]) -> ClientsConfig {
    let allow = AllowList::new(vec!["203.0.113.0/24".parse().unwrap()]);
    ClientsConfig { allow, psk: Secret([9; 32]), compression: Compression::Off, clients: clients.to_vec() }
}

fn clients(configured: &[ClientConfig]) -> Clients {
    Clients::open(terms(configured), None, volumes(&["vm-1", "vm-2", "backup"])).unwrap()
}

fn named(id: ClientId, name: &str) -> ClientConfig {
    ClientConfig { name: name.into(), ..ClientConfig::new(id) }
}

fn seen(units: &LogicalUnits) -> Vec<String> {
    units.iter().iter().map(|(_, disk)| disk.identity().name().to_owned()).collect()
}

fn settings(change: impl FnOnce(&mut ClientSettings)) -> ClientSettings {
    let mut settings = ClientSettings::default();
    change(&mut settings);
    settings
}

#[test]
fn a_client_that_is_known_is_served_from_anywhere_until_it_is_removed() {
    let clients = clients(&[named(ALICE, "alice")]);
    let elsewhere = Peer::Udp(("198.51.100.1".parse::<IpAddr>().unwrap(), 1).into());
    assert!(clients.permits(elsewhere, Some(ALICE)) && clients.permits(elsewhere, None));
    assert!(!clients.permits(elsewhere, Some(BOB)) && clients.permits(anywhere(), Some(BOB)));
    clients.change(Change::Remove("alice")).unwrap();
    clients.change(Change::Remove(&BOB.to_string())).unwrap();
    for client in [ALICE, BOB] {
        assert!(!clients.permits(anywhere(), Some(client)), "also against the rules");
    }
    clients.change(Change::Add(BOB, &ClientSettings::default())).unwrap();
    assert!(clients.permits(elsewhere, Some(BOB)));
    assert!(
        matches!(clients.change(Change::Remove("alice")), Err(ChangeError::Client(ClientError::Unknown(_)))),
        "no name any more"
    );
    clients.change(Change::Reset(&ALICE.to_string())).unwrap();
    assert!(clients.permits(elsewhere, Some(ALICE)));
}

#[test]
fn secrets_are_the_clients_own_or_the_servers() {
    let own = ClientConfig { psk: Some(Secret([1; 32])), ..named(ALICE, "alice") };
    let gate = Gate(Arc::new(clients(&[own])));
    assert_eq!((gate.psk(ALICE), gate.psk(BOB)), (Some([1; 32]), Some([9; 32])));
    let with_secret = settings(|change| change.psk = Some(Secret([2; 32])));
    gate.0.change(Change::Set("alice", &with_secret)).unwrap();
    assert_eq!(gate.psk(ALICE), Some([2; 32]));
    let without = settings(|change| change.no_password = true);
    gate.0.change(Change::Set("alice", &without)).unwrap();
    assert_eq!(gate.psk(ALICE), Some([9; 32]));
}

#[test]
fn connections_with_a_client_are_to_be_as_it_was_set_last() {
    let gate = Gate(Arc::new(clients(&[named(ALICE, "alice")])));
    assert!(!gate.wishes(ALICE).medium_lock && !gate.wishes(BOB).medium_lock);
    let set = |lock_media| {
        let settings = ClientSettings { lock_media, ..ClientSettings::default() };
        gate.0.change(Change::Set("alice", &settings)).unwrap();
        gate.0.find("alice").unwrap()
    };
    for (setting, is_locked) in [(Some(true), true), (None, true), (Some(false), false)] {
        assert_eq!((set(setting).lock_media, gate.wishes(ALICE).medium_lock), (is_locked, is_locked));
    }
}

#[test]
fn a_change_of_one_client_turns_to_none_of_the_others_that_are_there() {
    let clients = clients(&[named(ALICE, "alice")]);
    let others = (0..1000u128).map(|number| clients.enter(ClientId(number.to_be_bytes()), anywhere(), false));
    let others: Vec<_> = others.collect();
    let alice = [false, true].map(|is_read_only| clients.enter(ALICE, anywhere(), is_read_only));
    let none = settings(|change| change.volumes = Some(Vec::new()));
    let visits = crate::visits::during(|| _ = clients.change(Change::Set("alice", &none)).unwrap());
    assert_eq!((visits, alice.map(|units| seen(&units).len())), (2, [0, 0]));
    assert!(others.iter().all(|units| seen(units).len() == 3));
}

#[test]
fn a_client_sees_the_volumes_that_it_may_use_also_when_that_changes() {
    let restricted = ClientConfig { volumes: vec!["vm-*".parse().unwrap()], ..named(ALICE, "alice") };
    let clients = clients(&[restricted]);
    let (alice, bob) = (clients.enter(ALICE, anywhere(), false), clients.enter(BOB, anywhere(), false));
    assert_eq!((seen(&alice), seen(&bob).len()), (vec!["vm-1".into(), "vm-2".into()], 3));
    let only_backup = settings(|change| change.volumes = Some(vec!["back??".into()]));
    clients.change(Change::Set("alice", &only_backup)).unwrap();
    assert_eq!(seen(&alice), ["backup"], "its sessions see it at once");
    assert!(Arc::ptr_eq(&alice, &clients.enter(ALICE, anywhere(), false)), "all of them");
    clients.change(Change::Remove(&ALICE.to_string())).unwrap();
    assert!(seen(&alice).is_empty(), "until it is dropped");
    clients.change(Change::Reset(&ALICE.to_string())).unwrap();
    assert_eq!(seen(&alice).len(), 2);
    clients
        .configure(ClientsConfig { allow: AllowList::new(vec![AllowRule::Client(BOB)]), ..terms(&[]) }, false)
        .unwrap();
    assert_eq!((seen(&alice).len(), seen(&bob).len()), (0, 3));
}

#[test]
fn clients_follow_volumes_that_come_and_go_whether_they_see_all_or_some() {
    let some = ClientConfig { volumes: vec!["vm-*".parse().unwrap()], ..named(BOB, "bob") };
    let volumes = volumes(&["vm-1", "backup"]);
    let clients = Clients::open(terms(&[named(ALICE, "alice"), some]), None, Arc::clone(&volumes)).unwrap();
    let views = [ALICE, BOB].map(|client| clients.enter(client, anywhere(), false));
    let shown = || [seen(&views[0]), seen(&views[1])];
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(shown(), [names(&["vm-1", "backup"]), names(&["vm-1"])]);
    let [first, last] = [0, 300].map(|number| Lun::new(number).unwrap());
    let disk = volumes.remove(first).unwrap();
    clients.follow_volumes(&[first]);
    assert_eq!(shown(), [names(&["backup"]), names(&[])]);
    volumes.add_shared(last, disk).unwrap();
    clients.follow_volumes(&[last]);
    assert_eq!(shown(), [names(&["backup", "vm-1"]), names(&["vm-1"])]);
    clients.change(Change::Remove("bob")).unwrap();
    clients.leave(BOB, false);
    assert_eq!(shown(), [names(&["backup", "vm-1"]), names(&[])]);
}

#[test]
fn changes_survive_a_restart_and_override_the_configuration() {
    let path = std::env::temp_dir().join(format!("sanwire-clients-{}.json", std::process::id()));
    let _ = fs::remove_file(&path);
    let open = |configured: &[ClientConfig]| {
        Clients::open(terms(configured), Some(path.clone()), volumes(&[])).map(|clients| (clients.list(), clients))
    };
    let configured = [named(ALICE, "alice"), named(ClientId([3; 16]), "carol")];
    let (_, clients) = open(&configured).unwrap();
    let changes = settings(|change| {
        change.psk = Some(Secret([5; 32]));
        change.manage = Some(true);
        change.window_packets = Some(16);
    });
    clients.change(Change::Set("alice", &changes)).unwrap();
    let alice = clients.find("alice").unwrap();
    let called_bob = settings(|change| change.name = Some("bob".into()));
    clients.change(Change::Add(BOB, &called_bob)).unwrap();
    let bob = clients.find("bob").unwrap();
    clients.change(Change::Remove("carol")).unwrap();
    let (list, again) = open(&configured).unwrap();
    assert_eq!(list, [alice, bob.clone()]);
    again.change(Change::Reset("alice")).unwrap();
    again.change(Change::Reset(&configured[1].id.to_string())).unwrap();
    assert_eq!(open(&configured).unwrap().0, [configured[1].clone(), configured[0].clone(), bob]);

    fs::write(&path, "{").unwrap();
    assert!(matches!(open(&configured), Err(ChangeError::Load(_))), "a damaged file is not taken for an empty one");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let error = clients.change(Change::Add(ClientId([4; 16]), &ClientSettings::default())).unwrap_err().to_string();
    assert!(error.contains("nothing was changed") && clients.list().len() == 2, "{error}");
    fs::remove_dir(&path).unwrap();
    let _ = fs::remove_file(path.with_extension("json.new"));
}

#[test]
fn what_cannot_be_is_refused() {
    let clients = clients(&[named(ALICE, "alice"), named(BOB, "bob")]);
    for (change, part) in [
        (settings(|change| change.name = Some("bob".into())), "another client is called bob"),
        (settings(|change| change.name = Some(BOB.to_string())), "is no name for a client"),
        (settings(|change| change.name = Some("a b".into())), "is no name for a client"),
        (settings(|change| change.volumes = Some(vec!["a/b".into()])), "'a/b' names no volumes"),
        (settings(|change| change.weight = Some(0)), "a weight is a number from 1 to 1000"),
    ] {
        let error = clients.change(Change::Set("alice", &change)).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(clients.find("alice"), Ok(named(ALICE, "alice")));
    assert!(matches!(
        clients.change(Change::Add(ALICE, &ClientSettings::default())),
        Err(ChangeError::Client(ClientError::Known(_)))
    ));
    assert_eq!(terms(&[named(ALICE, "x"), named(BOB, "x")]).check(), Err(ClientError::NameTaken("x".into())));
    assert_eq!(terms(&[named(ALICE, "x"), named(ALICE, "y")]).check(), Err(ClientError::Twice(ALICE)));
}

#[test]
fn secrets_are_not_shown() {
    let client = ClientConfig { psk: Some(Secret([0xab; 32])), ..named(ALICE, "alice") };
    assert!(!format!("{client:?}").contains("171") && format!("{client:?}").contains("Secret(...)"));
    let kept = serde_json::to_string(&client).unwrap();
    assert!(kept.contains(&"ab".repeat(32)), "but kept");
    assert_eq!(serde_json::from_str::<ClientConfig>(&kept).unwrap(), client);
    assert!(serde_json::from_str::<ClientConfig>(&kept.replace("abab", "xyxy")).is_err());
}

#[test]
fn a_client_that_is_configured_otherwise_since_it_was_changed_is_as_configured() {
    let path = std::env::temp_dir().join(format!("sanwire-clients-edited-{}.json", std::process::id()));
    let _ = fs::remove_file(&path);
    let open =
        |configured: &[ClientConfig]| Clients::open(terms(configured), Some(path.clone()), volumes(&[])).unwrap();
    let (alice, bob) = (named(ALICE, "alice"), named(BOB, "bob"));
    let heavy = settings(|change| change.weight = Some(9));
    let clients = open(&[alice.clone(), bob.clone()]);
    clients.change(Change::Set("alice", &heavy)).unwrap();
    clients.change(Change::Remove("bob")).unwrap();
    drop(clients);
    let edited = ClientConfig { read_only: true, ..alice.clone() };
    let clients = open(&[edited.clone(), bob.clone()]);
    assert_eq!(clients.list(), [edited], "bob stays removed");
    drop(clients);
    let clients = open(&[alice.clone(), bob.clone()]);
    assert_eq!(clients.list(), std::slice::from_ref(&alice), "what was overridden does not come back");
    let edited = ClientConfig { weight: 2, ..bob };
    assert_eq!(clients.configure(terms(&[alice.clone(), edited.clone()]), false).unwrap().len(), 1, "it is said");
    assert_eq!(clients.list(), [alice, edited]);
    fs::remove_file(&path).unwrap();
}

#[test]
fn changes_that_the_first_versions_kept_still_hold() {
    let path = std::env::temp_dir().join(format!("sanwire-clients-first-{}.json", std::process::id()));
    let heavy = ClientConfig { weight: 9, ..named(ALICE, "alice") };
    let content = serde_json::json!({ "clients": [heavy], "removed": [BOB.to_string()] });
    fs::write(&path, serde_json::to_vec_pretty(&content).unwrap()).unwrap();
    let open =
        || Clients::open(terms(&[named(ALICE, "alice"), named(BOB, "bob")]), Some(path.clone()), volumes(&[])).unwrap();
    assert_eq!(open().list(), std::slice::from_ref(&heavy));
    open().change(Change::Set("alice", &settings(|change| change.weight = Some(3)))).unwrap();
    assert_eq!(open().list(), [ClientConfig { weight: 3, ..heavy }], "in the file of today");
    fs::remove_file(&path).unwrap();
}

#[test]
fn a_client_that_was_removed_is_not_served_when_it_is_configured_no_longer() {
    let clients = clients(&[named(ALICE, "alice")]);
    clients.change(Change::Remove("alice")).unwrap();
    assert!(!clients.permits(anywhere(), Some(ALICE)));
    clients.configure(terms(&[]), false).unwrap();
    assert!(!clients.permits(anywhere(), Some(ALICE)), "nobody has added it again");
}

#[test]
fn a_name_that_two_clients_have_finds_neither_and_their_ids_find_both() {
    let clients = clients(&[]);
    clients.change(Change::Add(ALICE, &settings(|change| change.name = Some("dora".into())))).unwrap();
    let lines = clients.configure(terms(&[named(BOB, "dora")]), false).unwrap();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("2 clients are called dora: a1a1"), "{lines:?}");
    let read_only = settings(|change| change.read_only = Some(true));
    for change in [Change::Set("dora", &read_only), Change::Remove("dora"), Change::Reset("dora")] {
        let refused = clients.change(change).unwrap_err();
        assert!(matches!(refused, ChangeError::Client(ClientError::Ambiguous { .. })), "{refused}");
    }
    assert!(matches!(clients.find("dora"), Err(ClientError::Ambiguous { .. })));
    clients.change(Change::Set(&BOB.to_string(), &read_only)).unwrap();
    assert!(clients.find(&BOB.to_string()).unwrap().read_only, "what has nothing to do with the name is changed");
    clients.change(Change::Set(&ALICE.to_string(), &settings(|change| change.name = Some("eve".into())))).unwrap();
    assert_eq!(clients.find("dora").unwrap().id, BOB);
    let taken = settings(|change| change.name = Some("dora".into()));
    let refused = clients.change(Change::Set("eve", &taken)).unwrap_err();
    assert!(matches!(refused, ChangeError::Client(ClientError::NameTaken(_))), "{refused}");
    clients.change(Change::Reset(&BOB.to_string())).unwrap();
}

#[test]
fn a_session_with_one_volume_sees_it_as_long_as_its_client_may() {
    let clients = clients(&[ClientConfig { volumes: vec!["vm-*".parse().unwrap()], ..named(ALICE, "alice") }]);
    let [one, other] = ["vm-2", "backup"].map(|volume| Some(Arc::from(volume)));
    let all = clients.enter_disk(ALICE, anywhere(), None);
    let (mine, others) =
        (clients.enter_disk(ALICE, anywhere(), one.clone()), clients.enter_disk(ALICE, anywhere(), other));
    assert_eq!(
        (seen(&all), seen(&mine), seen(&others)),
        (vec!["vm-1".into(), "vm-2".into()], vec!["vm-2".into()], vec![])
    );
    assert!(clients.may_see(ALICE, "vm-2") && !clients.may_see(ALICE, "backup") && clients.may_see(BOB, "backup"));
    clients.change(Change::Set("alice", &settings(|alice| alice.volumes = Some(vec!["vm-1".into()])))).unwrap();
    assert_eq!((seen(&all), seen(&mine)), (vec!["vm-1".into()], vec![]));
    clients.leave_disk(ALICE, one.clone());
    assert!(clients.disk_seen_by(ALICE, one).is_none() && clients.disk_seen_by(ALICE, None).is_some());
}
