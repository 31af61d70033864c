use sanwire_store::{Acceptance, VolumeSpec};

use super::testing::{Kept, any_port, config};
use super::*;
use crate::config::Origin;
use crate::front::hyperscsi::clients::{ClientSettings, Secret};
use crate::front::iscsi::target_node::TargetNodeError;

const RELOAD: Request = Request::Reload { force: false, dry_run: false, reset: false };

fn manager(before: &[&str], after: &'static [&'static str]) -> Manager {
    Manager::start(config(before), Box::new(move || Ok(super::testing::config(after)))).unwrap()
}

fn volumes(manager: &mut Manager) -> Vec<(String, u16, u64)> {
    let Ok(Answer::Status(status)) = manager.execute(Request::Status) else { panic!("the status") };
    status.volumes.into_iter().map(|volume| (volume.name, volume.lun, volume.size_bytes)).collect()
}

fn targets(manager: &mut Manager) -> Vec<(String, Vec<(u16, String)>)> {
    let Ok(Answer::Status(status)) = manager.execute(Request::Status) else { panic!("the status") };
    status.targets.into_iter().map(|target| (target.name, target.units)).collect()
}

const FOR_NOW: &str = "this is forgotten when the server ends: it has no state directory";

fn changed(manager: &mut Manager, request: Request) -> Vec<String> {
    match manager.execute(request).unwrap() {
        Answer::Changed(lines) => lines,
        other => panic!("{other:?}"),
    }
}

#[test]
fn volumes_come_grow_and_go_while_the_server_runs() {
    let mut manager = manager(&["a=ram:1M"], &[]);
    let add = |volume: &str, target: Option<&str>| Request::AddVolume {
        volume: volume.into(),
        target: target.map(str::to_owned),
        renew: false,
        adopt: false,
    };
    let own = "iqn.2026-11.org.sanwire:a";
    assert_eq!(changed(&mut manager, add("b=ram:2M", None)), ["volume b is served", FOR_NOW], "no wire of iSCSI");
    let lines = changed(&mut manager, add("c=ram:3M", Some(own)));
    assert_eq!(lines, [&format!("volume c is served, as logical unit 1 of {own}"), FOR_NOW]);
    assert_eq!(targets(&mut manager)[0], (own.into(), vec![(0, "a".into()), (1, "c".into())]));
    assert!(matches!(manager.execute(add("a=ram:1M", None)), Err(ManageError::Taken(_))));
    assert!(matches!(manager.execute(add("d=ram:1M", Some("iqn.x"))), Err(ManageError::NoTarget(_))));
    assert!(matches!(manager.execute(add("nonsense", None)), Err(ManageError::Spec(_))));

    let resize = |size: &str| Request::ResizeVolume { name: "b".into(), size: size.into() };
    assert_eq!(changed(&mut manager, resize("4M")), ["volume b has 4 MiB now, 2 MiB before"]);
    assert!(manager.execute(resize("1M")).unwrap_err().to_string().contains("never made shorter"));
    assert!(matches!(manager.execute(resize("much")), Err(ManageError::Size(_))));

    changed(&mut manager, Request::RemoveVolume { name: "a".into(), force: false });
    assert_eq!(volumes(&mut manager), [("b".into(), 1, 4 << 20), ("c".into(), 2, 3 << 20)]);
    assert_eq!(targets(&mut manager)[0], (own.into(), vec![(1, "c".into())]));
    assert!(matches!(
        manager.execute(Request::RemoveVolume { name: "a".into(), force: false }),
        Err(ManageError::NoVolume(_))
    ));
    manager.into_target().stop().unwrap();
}

#[test]
fn who_adds_more_memory_than_the_machine_has_is_told() {
    let mut manager = manager(&[], &[]);
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kibibytes: u64 = meminfo.lines().next().and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap();
    let add = |name: &str| {
        let volume = format!("{name}=ram:{}K", kibibytes / 4 * 4);
        Request::AddVolume { volume, target: None, renew: false, adopt: false }
    };
    let is_warned = |lines: &[String]| lines.iter().any(|line| line.starts_with("the ram: volumes may take "));
    assert!(!is_warned(&changed(&mut manager, add("a"))));
    // A machine may have as much of swap space again.
    let more = ["b", "c", "d"].map(|name| changed(&mut manager, add(name)));
    assert!(more.iter().any(|lines| is_warned(lines)), "{more:?}");
    let rehearsed = changed(&mut manager, Request::DryRun { request: Box::new(add("e")) });
    assert!(is_warned(&rehearsed), "{rehearsed:?}");
    manager.into_target().stop().unwrap();
}

#[test]
fn volumes_are_guarded_otherwise_while_they_are_served_but_not_while_they_pass_in_the_clear() {
    let in_the_clear = |volumes: &[&str], clear: &'static [&'static str]| {
        let mut config = config(volumes);
        config.exports.retain(|export| export.units.values().any(|volume| clear.contains(&volume.as_str())));
        config
    };
    let before = in_the_clear(&["a=ram:1M", "b=ram:1M,security=hash"], &["a"]);
    let after = move || Ok(in_the_clear(&["a=ram:1M,security=aes-256-gcm", "b=ram:2M,security=none"], &["b"]));
    let mut manager = Manager::start(before, Box::new(after)).unwrap();
    let set = |security: &str| Request::SetVolume {
        name: "a".into(),
        security: Some(security.into()),
        protected: None,
        owners: None,
    };
    let level = |manager: &Manager, lun| manager.target().security(Lun::new(lun).unwrap());
    assert!(manager.execute(set("hash")).unwrap_err().to_string().contains("iqn.2026-11.org.sanwire:a"));
    assert_eq!(level(&manager, 0), Protection::Checksum);
    changed(
        &mut manager,
        Request::UnmapVolume { name: "a".into(), target: "iqn.2026-11.org.sanwire:a".into(), force: false },
    );
    assert_eq!(
        changed(&mut manager, set("hash")),
        ["volume a is protected by security hash now, none before", FOR_NOW]
    );
    assert_eq!(level(&manager, 0), Protection::Hash);
    assert!(manager.execute(set("rot13")).unwrap_err().to_string().starts_with("volume a: "));
    let unknown = Request::SetVolume { name: "z".into(), security: Some("none".into()), protected: None, owners: None };
    assert!(matches!(manager.execute(unknown), Err(ManageError::NoVolume(_))));
    let lines = changed(&mut manager, RELOAD);
    assert_eq!([0, 1].map(|lun| level(&manager, lun)), [Protection::Aes256Gcm, Protection::Checksum], "{lines:?}");
    assert!(lines.contains(&"volume a is protected by security aes-256-gcm now, hash before".into()), "{lines:?}");
    assert!(lines.contains(&"volume b has 2 MiB now, 1 MiB before".into()), "{lines:?}");
    assert_eq!(changed(&mut manager, RELOAD).len(), 0);
    manager.into_target().stop().unwrap();
}

#[test]
fn targets_that_are_refused_lower_no_volume_and_those_that_are_not_may_have_what_is_about_to_be_lowered() {
    let mut before = config(&["a=ram:1M,security=hash", "b=ram:1M,security=hash"]);
    let exports = std::mem::take(&mut before.exports);
    let target = Server::start(before.clone()).unwrap();
    let level = |target: &Server| target.security(Lun::new(0).unwrap());
    let lower: VolumeSpec = "a=ram:1M,security=none".parse().unwrap();
    let refused = target.set_exports_where(exports.clone(), &[&lower]).unwrap_err();
    assert!(refused.to_string().contains("iqn.2026-11.org.sanwire:b"), "{refused}");
    assert_eq!((target.exports().len(), level(&target)), (0, Protection::Hash));
    target.set_exports_where(exports[..1].to_vec(), &[&lower]).unwrap();
    assert_eq!((target.exports().len(), level(&target)), (1, Protection::Hash), "not yet");
    target.secure_volume(Lun::new(0).unwrap(), &lower).unwrap();
    assert_eq!(level(&target), Protection::Checksum);
    target.stop().unwrap();
}

#[test]
fn a_reload_applies_differences_only() {
    let mut manager = manager(
        &["stays=ram:1M", "goes=ram:1M", "grows=ram:1M", "differs=ram:1M"],
        &["comes=ram:1M", "grows=ram:2M", "differs=null:1M", "stays=ram:1M"],
    );
    let lines = changed(&mut manager, RELOAD);
    for expected in ["volume comes is served", "volume goes is not served any more", "volume grows has 2 MiB now"] {
        assert!(lines.iter().any(|line| line.starts_with(expected)), "{expected}\n{lines:?}");
    }
    assert!(lines.iter().any(|line| line.starts_with("not changed: volume differs")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("stays")), "{lines:?}");
    let found = volumes(&mut manager);
    let expected = [("stays", 0, 1 << 20), ("grows", 2, 2 << 20), ("differs", 3, 1 << 20), ("comes", 4, 1 << 20)];
    assert_eq!(found, expected.map(|(name, lun, size)| (name.to_owned(), lun, size)));
    assert_eq!(changed(&mut manager, RELOAD).len(), 1, "only what differs for ever");
    manager.into_target().stop().unwrap();
}

#[test]
fn a_reload_that_fails_changes_nothing() {
    let mut manager = manager(&["a=ram:1M"], &["b=ram:1M", "c=file:/nowhere/at/all"]);
    assert!(matches!(manager.execute(RELOAD), Err(ManageError::Open(_))));
    assert_eq!(volumes(&mut manager), [("a".into(), 0, 1 << 20)]);
    assert_eq!(targets(&mut manager).len(), 1);
    manager.into_target().stop().unwrap();
}

#[test]
fn only_groups_that_are_there_have_states() {
    let mut manager = manager(&["a=ram:1M"], &[]);
    let mut set = |target: Option<&str>| {
        let target = target.map(str::to_owned);
        manager.execute(Request::SetAccessState(crate::manage::AccessChange {
            group: 1,
            state: PortState::Standby,
            target,
        }))
    };
    assert!(matches!(set(None), Err(ManageError::NoGroup(1))), "no wire of iSCSI");
    assert!(matches!(set(Some("iqn.2026-11.org.sanwire:a")), Err(ManageError::NoGroup(1))));
    for unknown in ["iqn.2026-11.org.sanwire:b", "nonsense"] {
        assert!(matches!(set(Some(unknown)), Err(ManageError::NoTarget(name)) if name == unknown));
    }
    manager.into_target().stop().unwrap();
}

#[test]
fn requests_are_written_as_json() {
    let request: Request = serde_json::from_str(r#"{"do": "add-volume", "volume": "disk1=ram:1G"}"#).unwrap();
    assert_eq!(request, Request::AddVolume { volume: "disk1=ram:1G".into(), target: None, renew: false, adopt: false });
    let standby: Request =
        serde_json::from_str(r#"{"do": "set-access-state", "group": 2, "state": "standby"}"#).unwrap();
    assert_eq!(
        standby,
        Request::SetAccessState(crate::manage::AccessChange { group: 2, state: PortState::Standby, target: None })
    );
    let misspelt = r#"{"do": "add-volume", "volume": "a=ram:1M", "traget": "x"}"#;
    assert!(serde_json::from_str::<Request>(misspelt).is_err());
}

const ALICE: &str = "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1";

#[test]
fn clients_are_added_changed_and_removed() {
    let mut manager = manager(&["a=ram:1M"], &["a=ram:1M"]);
    let settings =
        ClientSettings { name: Some("alice".into()), volumes: Some(vec!["a*".into()]), ..Default::default() };
    let lines = changed(&mut manager, Request::AddClient { id: ALICE.into(), settings, force: false });
    assert_eq!(lines[0], format!("client alice ({ALICE}) is served: volumes a*, read and write"));
    assert!(lines[1].contains("forgotten when the server ends"), "{lines:?}");
    let settings = ClientSettings { manage: Some(true), psk: Some(Secret([1; 32])), ..Default::default() };
    let lines = changed(&mut manager, Request::SetClient { client: "alice".into(), settings, force: false });
    assert!(lines[0].ends_with("may manage the server; its password holds from its next handshake on"), "{lines:?}");
    let Ok(Answer::Clients(clients)) = manager.execute(Request::Clients) else { panic!("the clients") };
    let [alice] = &clients[..] else { panic!("{clients:?}") };
    assert!(alice.has_password && alice.client.psk.is_none() && alice.client.manage, "the secret is not told");
    let text = serde_json::to_string(&Answer::Clients(clients.clone())).unwrap();
    assert_eq!(serde_json::from_str::<Answer>(&text).unwrap(), Answer::Clients(clients));
    assert!(changed(&mut manager, RELOAD).is_empty(), "it stays through a reload");
    changed(&mut manager, Request::RemoveClient { client: "alice".into(), force: false });
    assert!(manager.execute(Request::DropClient { client: "alice".into() }).is_err(), "there is no such name any more");
    let nobody = Request::DropClient { client: "iqn.2026-11.org.example:host".into() };
    assert!(matches!(manager.execute(nobody), Err(ManageError::NoSession(_))));
    let id = "00112233445566778899aabbccddeeff".to_owned();
    changed(&mut manager, Request::PauseClient { client: id.clone() });
    changed(&mut manager, Request::ResumeClient { client: id });
    assert!(manager.execute(Request::PauseClient { client: "nobody".into() }).is_err());
    let lines = changed(&mut manager, Request::ResetClient { client: ALICE.into(), force: false });
    assert!(lines[0].contains("is not configured"), "{lines:?}");
    assert!(matches!(
        manager.execute(Request::AddClient { id: "alice".into(), settings: ClientSettings::default(), force: false }),
        Err(ManageError::Client(_))
    ));
    manager.into_target().stop().unwrap();
}

#[test]
fn a_file_that_another_volume_of_the_server_has_is_refused_with_its_name() {
    let path = std::env::temp_dir().join(format!("sanwire-holder-{}", std::process::id()));
    let mut manager = manager(&[&format!("a=file:{},size=1M", path.display())], &[]);
    let other = path.with_file_name(".").join(path.file_name().unwrap());
    let volume = format!("b=file:{}", other.display());
    let add = Request::AddVolume { volume, target: None, renew: false, adopt: false };
    let refused = manager.execute(add).unwrap_err();
    assert_eq!(refused.code(), "volume-not-opened");
    assert!(refused.to_string().contains("is in use by volume a of this server"), "{refused}");
    manager.into_target().stop().unwrap();
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_file_that_has_grown_is_not_forgotten_in_the_configuration() {
    let path = std::env::temp_dir().join(format!("sanwire-grown-{}", std::process::id()));
    let spec = format!("a=file:{},size=1M", path.display());
    let mut manager = manager(&[&spec, "b=ram:1M"], &[]);
    let resize = |name: &str, size: &str| Request::ResizeVolume { name: name.into(), size: size.into() };
    let lines = changed(&mut manager, resize("a", "2M"));
    assert_eq!(lines[0], "volume a has 2 MiB now, 1 MiB before");
    assert!(
        lines[1].starts_with(
            "this server keeps no changes: update `size` in the configuration: it is smaller than the volume now"
        ),
        "{lines:?}"
    );
    assert_eq!(changed(&mut manager, resize("a", "2M")), [""; 0]);
    assert_eq!(changed(&mut manager, resize("b", "2M")).len(), 1);
    manager.into_target().stop().unwrap();
    std::fs::remove_file(path).unwrap();
}

#[test]
fn the_ports_of_hyperscsi_have_a_state_of_their_own() {
    let mut manager = manager(&["a=ram:1M"], &[]);
    let set = |group, target: Option<&str>| {
        Request::SetAccessState(crate::manage::AccessChange {
            group,
            state: PortState::Standby,
            target: target.map(str::to_owned),
        })
    };
    let states = |manager: &mut Manager| {
        let Ok(Answer::Status(status)) = manager.execute(Request::Status) else { panic!("the status") };
        (status.groups, status.targets[0].groups.clone())
    };
    let group = |state| vec![GroupStatus { group: 1, state: Some(state) }];
    assert_eq!(states(&mut manager), (group(PortState::ActiveOptimized), Vec::new()), "no portal of iSCSI");
    let line = "hyperscsi: group 1 has another state now";
    assert_eq!(changed(&mut manager, set(1, Some("hyperscsi"))), [line]);
    assert_eq!(changed(&mut manager, set(1, Some("hyperscsi"))), [""; 0]);
    assert_eq!(states(&mut manager).0, group(PortState::Standby));
    assert!(matches!(manager.execute(set(2, Some("hyperscsi"))), Err(ManageError::NoHyperScsiGroup(2))));
    assert!(matches!(manager.execute(set(1, None)), Err(ManageError::NoGroup(1))));
    manager.into_target().stop().unwrap();
}

#[test]
fn volumes_are_mapped() {
    let mut manager = manager(&["a=ram:1M", "b=ram:1M"], &[]);
    let map = |name: &str, lun: Option<u16>, target: Option<&str>| Request::MapVolume {
        name: name.into(),
        lun,
        target: target.map(str::to_owned),
        force: false,
    };
    assert_eq!(changed(&mut manager, map("a", Some(7), None)), ["volume a is logical unit 7 now, 0 before", FOR_NOW]);
    assert_eq!(volumes(&mut manager), [("b".into(), 1, 1 << 20), ("a".into(), 7, 1 << 20)]);
    assert!(matches!(manager.execute(map("a", Some(1), None)), Err(ManageError::LunTaken { .. })));
    assert!(matches!(manager.execute(map("a", None, None)), Err(ManageError::Where(_))));
    assert!(matches!(manager.execute(map("a", Some(20_000), None)), Err(ManageError::Lun(20_000))));
    assert!(matches!(manager.execute(map("x", Some(1), None)), Err(ManageError::NoVolume(_))));

    let (own, other) = ("iqn.2026-11.org.sanwire:a", "iqn.2026-11.org.example:both");
    changed(&mut manager, map("a", None, Some(other)));
    assert_eq!(changed(&mut manager, map("b", None, Some(other)))[0], format!("volume b is logical unit 1 of {other}"));
    assert!(matches!(manager.execute(map("a", Some(1), Some(other))), Err(ManageError::LunTaken { .. })));
    changed(&mut manager, map("a", Some(5), Some(other)));
    assert_eq!(targets(&mut manager)[0], (other.into(), vec![(1, "b".into()), (5, "a".into())]));
    assert!(matches!(manager.execute(map("a", None, Some("nonsense"))), Err(ManageError::TargetName(_))));
    let unmap =
        |name: &str, target: &str| Request::UnmapVolume { name: name.into(), target: target.into(), force: false };
    changed(&mut manager, unmap("a", own));
    assert!(targets(&mut manager).iter().all(|(name, _)| name != own), "a target without units goes");
    assert!(matches!(manager.execute(unmap("a", own)), Err(ManageError::NoTarget(_))));
    changed(&mut manager, unmap("a", other));
    assert!(matches!(manager.execute(unmap("a", other)), Err(ManageError::NotThere { .. })));
    manager.into_target().stop().unwrap();
}

#[test]
fn every_change_and_every_refusal_is_written_down() {
    let path = std::env::temp_dir().join(format!("sanwire-audit-{}/log.jsonl", std::process::id()));
    let config = ServerConfig { audit_log: Some(path.clone()), ..config(&["a=ram:1M"]) };
    let mut manager = Manager::start(config, Box::new(|| Err("it cannot be read".into()))).unwrap();
    let process = Asker::Process { uid: 1000, pid: 42 };
    manager.handle(&process, Request::Status);
    let settings = ClientSettings { psk: Some(Secret([0xab; 32])), ..Default::default() };
    manager.handle(&process, Request::AddClient { id: ALICE.into(), settings, force: false });
    manager.handle(&Asker::Signal { signal: "SIGHUP" }, RELOAD);
    let client = Asker::Client { client: ALICE.parse().unwrap(), address: "10.0.0.1:5674".into(), as_owner: None };
    for _ in 0..100 {
        manager.refuse(&client, Refusal::new("not-permitted", "it may not manage the server")).when_stable();
    }
    manager.handle(&process, Request::RemoveClient { client: ALICE.into(), force: false });

    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("abab"), "no secrets");
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["by"]["uid"], &lines[0]["request"]["do"]), (&1000.into(), &"add-client".into()));
    assert_eq!((&lines[0]["result"], &lines[0]["request"]["settings"]["psk"]), (&"done".into(), &"(secret)".into()));
    assert!(lines[0]["time"].as_str().is_some_and(|time| time.ends_with('Z')));
    assert_eq!((&lines[1]["by"]["signal"], &lines[1]["result"]), (&"SIGHUP".into(), &"refused".into()));
    assert_eq!(lines[1]["details"][0], "it cannot be read");
    assert_eq!((&lines[2]["by"]["client"], &lines[2]["by"]["address"]), (&ALICE.into(), &"10.0.0.1:5674".into()));
    let last = lines.last().unwrap();
    assert_eq!(last["request"]["do"], "remove-client");
    let unwritten: u64 = lines.iter().filter_map(|line| line["unwritten"].as_u64()).sum();
    let refusals = lines.iter().filter(|line| line["by"]["address"].is_string()).count() as u64;
    assert_eq!(refusals + unwritten, 100, "none is lost without a trace");
    manager.into_target().stop().unwrap();
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[test]
fn what_is_refused_in_a_flood_is_counted_and_hides_no_refused_management() {
    let path = std::env::temp_dir().join(format!("sanwire-audit-{}-flood/log.jsonl", std::process::id()));
    let config = ServerConfig { audit_log: Some(path.clone()), ..config(&["a=ram:1M"]) };
    let manager = Manager::start(config, Box::new(|| Err("it cannot be read".into()))).unwrap();
    let client = Asker::Client { client: ALICE.parse().unwrap(), address: "10.0.0.1:5674".into(), as_owner: None };
    let stranger = Asker::Stranger { address: "10.0.0.2:1".into() };
    manager.note_offence(&client, &"it does not know the password, or is not who it says it is", false, 3);
    for _ in 0..100 {
        manager.note_offence(&stranger, &"packets that are forged", false, 1000);
    }
    manager.refuse(&client, Refusal::new("not-permitted", "it may not manage the server")).when_stable();

    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["by"]["client"], &lines[0]["by"]["address"]), (&ALICE.into(), &"10.0.0.1:5674".into()));
    assert_eq!((&lines[0]["result"], &lines[0]["count"]), (&"refused".into(), &3.into()));
    assert_eq!(lines[0]["details"][0], "it does not know the password, or is not who it says it is");
    assert_eq!(lines[1]["by"], serde_json::json!({"address": "10.0.0.2:1"}));
    assert_eq!(lines.last().unwrap()["details"][0], "it may not manage the server");
    let sum = |key: &str| lines.iter().filter_map(|line| line[key].as_u64()).sum::<u64>();
    assert_eq!(sum("count") + sum("unwritten"), 100_003, "none is lost without a trace");
    manager.into_target().stop().unwrap();
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[test]
fn a_server_whose_audit_log_cannot_be_written_does_not_start() {
    let config = ServerConfig { audit_log: Some("/proc/nowhere/log".into()), ..config(&["a=ram:1M"]) };
    let Err(error) = Server::start(config) else { panic!("it starts") };
    assert!(error.to_string().starts_with("the audit log /proc/nowhere/log cannot be written"), "{error}");
}

#[test]
fn a_volume_whose_adding_failed_is_not_remembered() {
    let directory = std::env::temp_dir().join(format!("sanwire-take-back-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let config = ServerConfig { state_directory: Some(directory.join("state")), ..config(&["a=ram:1M"]) };
    let mut manager = Manager::start(config, Box::new(|| Err("nobody reloads".into()))).unwrap();
    let file = directory.join("b.img");
    let add = |keys: &str, target: Option<&str>| Request::AddVolume {
        volume: format!("b=file:{},size=1M{keys}", file.display()),
        target: target.map(str::to_owned),
        renew: false,
        adopt: false,
    };
    let refused = manager.execute(add(",security=aes-256-gcm", Some("iqn.2026-11.org.sanwire:a")));
    assert!(matches!(refused, Err(ManageError::TargetNode(TargetNodeError::Protected { .. }))), "{refused:?}");
    std::fs::remove_file(&file).unwrap();
    changed(&mut manager, add("", None));
    manager.into_target().stop().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
}

/// Who is told so takes its disk away, or switches the host off.
#[test]
fn a_volume_is_gone_when_all_that_was_written_to_it_is_stable_and_it_says_when_that_is_not() {
    let directory = std::env::temp_dir().join(format!("sanwire-removed-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let records = directory.join("state/writes");
    let kept = || {
        let entry = std::fs::read_dir(&records).unwrap().next().unwrap().unwrap();
        std::fs::read_to_string(entry.path()).unwrap()
    };
    let [good, bad] = ["", ",error=flush"].map(|keys| format!("a=file:{}/a.img,size=1M{keys}", directory.display()));
    let remove = || Request::RemoveVolume { name: "a".into(), force: false };
    let add = || Request::AddVolume { volume: bad.clone(), target: None, renew: false, adopt: false };
    let config = ServerConfig { state_directory: Some(directory.join("state")), ..config(&[&good]) };
    let mut manager = Manager::start(config, Box::new(move || Ok(super::testing::config(&[])))).unwrap();
    assert!(kept().contains("\"clean\":false"), "{}", kept());
    assert_eq!(changed(&mut manager, remove()), ["volume a is not served any more"]);
    let stable = kept();
    assert!(stable.contains("\"clean\":true"), "{stable}");
    changed(&mut manager, add());
    let told = manager.execute(remove()).unwrap_err().to_string();
    assert!(told.starts_with("volume a is not served any more, but what was written to it last may not be"), "{told}");
    assert!(volumes(&mut manager).is_empty());
    assert_ne!(kept(), stable, "who comes back to it hears that");
    changed(&mut manager, add());
    let gone = "volume a, which was changed by ctl, is not in the configuration any more: it is not served";
    assert_eq!(changed(&mut manager, RELOAD), [told.as_str(), gone]);
    manager.into_target().stop().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn statistics_begin_with_zero_also_for_a_volume_that_takes_the_place_of_another() {
    let mut manager = manager(&["a=ram:1M"], &[]);
    changed(&mut manager, Request::RemoveVolume { name: "a".into(), force: false });
    changed(&mut manager, Request::AddVolume { volume: "b=ram:1M".into(), target: None, renew: false, adopt: false });
    let Ok(Answer::Statistics(statistics)) = manager.execute(Request::Statistics) else { panic!("statistics") };
    assert_eq!((&*statistics.volumes[0].name, statistics.volumes[0].commands), ("b", 0));
    assert!(statistics.connections.is_empty() && statistics.dropped.values().all(|count| *count == 0));
    manager.into_target().stop().unwrap();
}

#[test]
fn no_open_target_is_made_beside_a_password() {
    refuses_open_targets([7; 32], |_| ());
}

#[test]
fn no_open_target_is_made_beside_a_password_of_a_client() {
    refuses_open_targets([0; 32], |manager| {
        let settings = ClientSettings { psk: Some(Secret([1; 32])), ..ClientSettings::default() };
        changed(manager, Request::AddClient { id: ALICE.into(), settings, force: false });
    });
}

fn refuses_open_targets(psk: [u8; 32], prepare: impl FnOnce(&mut Manager)) {
    let config = ServerConfig {
        psk,
        wires: ["hs-ip:127.0.0.1:1", "iscsi:127.0.0.1:1"].map(|wire| any_port(wire.parse().unwrap())).to_vec(),
        exports: Vec::new(),
        ..config(&["a=ram:1M"])
    };
    let mut manager = Manager::start(config, Box::new(|| Err("nobody reloads".into()))).unwrap();
    prepare(&mut manager);
    let add = Request::AddVolume { volume: "b=ram:1M".into(), target: None, renew: false, adopt: false };
    assert!(changed(&mut manager, add)[0].starts_with("volume b is served, over HyperSCSI only: the password"));
    let map =
        Request::MapVolume { name: "a".into(), lun: None, target: Some("iqn.2026-11.org.x".into()), force: false };
    assert!(matches!(manager.execute(map), Err(ManageError::OpenTarget(_))));
    assert_eq!(targets(&mut manager), []);
}

/// For as long as a client finds a volume, nobody reaches it less guarded than it demands.
#[test]
fn a_volume_that_goes_is_guarded_to_its_end() {
    use sanwire_core::{ClientId, Peer};
    let config = ServerConfig { exports: Vec::new(), ..config(&["open=ram:1M"]) };
    let target = Server::start(config).unwrap();
    let (lun, other) = (Lun::new(1).unwrap(), Lun::new(2).unwrap());
    let spec: VolumeSpec = "sealed=ram:1M,security=aes-256-gcm".parse().unwrap();
    let peer = Peer::Udp(std::net::SocketAddr::from(([127, 0, 0, 1], 1)));
    // The last of many clients to learn of a change.
    let views: Vec<_> = (0..100).map(|id| target.clients().enter(ClientId([id; 16]), peer, false)).collect();
    let view = views.last().unwrap();
    for round in 0..50 {
        target
            .add_volume(&VolumeConfig { lun, spec: spec.clone(), origin: Origin::CommandLine }, Acceptance::Known)
            .unwrap();
        let is_watched = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watches = scope.spawn(|| {
                // As a shard does: first how a request must be guarded, then whether there is such a volume.
                loop {
                    let level = target.security(lun);
                    if view.get(lun).is_none() {
                        return;
                    }
                    assert_eq!(level, Protection::Aes256Gcm, "round {round}");
                    is_watched.store(true, std::sync::atomic::Ordering::Relaxed);
                }
            });
            while !is_watched.load(std::sync::atomic::Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            if round % 2 == 1 {
                target.renumber_volume(lun, other).unwrap();
                drop(target.remove_volume(other));
            } else {
                drop(target.remove_volume(lun));
            }
            watches.join().unwrap();
        });
    }
}

#[test]
fn a_server_serves_on_as_many_wires_as_it_may_have() {
    let wires = (0..255).map(|_| any_port("hs-ip:127.0.0.1:1".parse().unwrap())).collect();
    let target = Server::start(ServerConfig { wires, exports: Vec::new(), ..config(&["a=ram:1M"]) }).unwrap();
    // A busy host may keep a shard from answering in time; one that has ended never answers.
    let end = std::time::Instant::now() + Duration::from_secs(60);
    let answers = std::iter::repeat_with(|| target.count().len()).take_while(|_| std::time::Instant::now() < end);
    assert_eq!(answers.filter(|count| *count == 1).take(3).count(), 3, "its shard goes on after each wait");
    assert!(target.is_alive());
}

#[test]
fn every_quota_is_kept_to_by_somebody_and_shown() {
    let directory = std::env::temp_dir().join(format!("sanwire-quotas-{}", std::process::id()));
    let config = ServerConfig { audit_log: Some(directory.join("audit.jsonl")), ..config(&["a=ram:1M"]) };
    let mut manager = Manager::start(config.clone(), Box::new(move || Ok(config.clone()))).unwrap();
    let Ok(Answer::Statistics(statistics)) = manager.execute(Request::Statistics) else { panic!("statistics") };
    let shown: Vec<_> = statistics.quotas.iter().map(|quota| (quota.holder.as_str(), quota.name.as_str())).collect();
    let all: Vec<_> = sanwire_core::quota::ALL.iter().map(|quota| (quota.holder.name(), quota.name)).collect();
    assert_eq!(shown, all);
    drop(manager);
    std::fs::remove_dir_all(directory).unwrap();
}

fn add(volume: impl Into<String>) -> Request {
    Request::AddVolume { volume: volume.into(), target: None, renew: false, adopt: false }
}

#[test]
fn what_is_changed_survives_a_restart_and_a_reload() {
    let kept = Kept::new("survives", &["a=ram:1M", "b=ram:1M"]);
    let mut manager = kept.start().unwrap();
    let file = kept.directory.join("c.img");
    changed(&mut manager, add(format!("c=file:{},size=1M", file.display())));
    changed(&mut manager, Request::RemoveVolume { name: "a".into(), force: false });
    changed(&mut manager, Request::ResizeVolume { name: "c".into(), size: "2M".into() });
    changed(&mut manager, Request::ResizeVolume { name: "b".into(), size: "3M".into() });
    let map = |name: &str, lun, target: Option<&str>| Request::MapVolume {
        name: name.into(),
        lun,
        target: target.map(str::to_owned),
        force: false,
    };
    changed(&mut manager, map("b", Some(9), None));
    changed(&mut manager, map("c", None, Some("iqn.2026-11.org.example:both")));
    changed(&mut manager, map("b", Some(4), Some("iqn.2026-11.org.example:both")));
    let (before, targets_before) = (volumes(&mut manager), targets(&mut manager));
    assert_eq!(before, [("c".into(), 2, 2 << 20), ("b".into(), 9, 3 << 20)]);
    let uuid = |manager: &Manager| manager.find("c").unwrap().1.identity().uuid();
    let identity = uuid(&manager);
    for round in 0..2 {
        assert_eq!(changed(&mut manager, RELOAD), [""; 0], "round {round}: that is what is wanted");
        drop(manager);
        manager = kept.start().unwrap();
        assert_eq!((volumes(&mut manager), targets(&mut manager)), (before.clone(), targets_before.clone()));
        assert_eq!(uuid(&manager), identity);
    }
    changed(
        &mut manager,
        Request::SetVolume { name: "c".into(), security: Some("none".into()), protected: None, owners: None },
    );
    manager.into_target().stop().unwrap();
}

#[test]
fn an_interrupted_resize_is_completed_when_the_volume_is_opened() {
    let kept = Kept::new("resize", &[]);
    let file = kept.directory.join("a.img");
    let mut manager = kept.start().unwrap();
    changed(&mut manager, add(format!("a=file:{},size=1M", file.display())));
    let longer = |volume: VolumeConfig| VolumeConfig { spec: volume.spec.clone().with_size(2 << 20), ..volume };
    manager.keep_definition(&manager.volume_with("a", longer).unwrap()).unwrap();
    drop(manager);
    let mut manager = kept.start().unwrap();
    assert_eq!(volumes(&mut manager), [("a".into(), 0, 2 << 20)]);
}

#[test]
fn a_change_that_cannot_be_kept_is_not_made() {
    let kept = Kept::new("full", &["a=ram:1M"]);
    let mut manager = kept.start().unwrap();
    kept.fill_disk();
    let map = Request::MapVolume { name: "a".into(), lun: Some(3), target: None, force: false };
    for request in [
        add("b=ram:1M"),
        Request::RemoveVolume { name: "a".into(), force: false },
        Request::ResizeVolume { name: "a".into(), size: "2M".into() },
        Request::SetVolume { name: "a".into(), security: Some("none".into()), protected: None, owners: None },
        map,
        Request::UnmapVolume { name: "a".into(), target: "iqn.2026-11.org.sanwire:a".into(), force: false },
    ] {
        let refused = manager.execute(request.clone());
        assert!(matches!(refused, Err(ManageError::Keep { .. })), "{request:?}: {refused:?}");
        assert_eq!((volumes(&mut manager), targets(&mut manager).len()), (vec![("a".into(), 0, 1 << 20)], 1));
    }
    drop(manager);
    let mut manager = kept.start().unwrap();
    assert_eq!(volumes(&mut manager), [("a".into(), 0, 1 << 20)]);
}

#[test]
fn a_volume_that_was_added_and_cannot_be_opened_keeps_no_other_from_being_served() {
    let kept = Kept::new("missing", &["a=ram:1M"]);
    let file = kept.directory.join("b.img");
    let mut manager = kept.start().unwrap();
    changed(&mut manager, add(format!("b=file:{},size=1M", file.display())));
    let both = "iqn.2026-11.org.example:both";
    let map = |name: &str| Request::MapVolume { name: name.into(), lun: None, target: Some(both.into()), force: false };
    changed(&mut manager, map("b"));
    let everything = (volumes(&mut manager), targets(&mut manager));
    drop(manager);
    let aside = kept.directory.join("aside");
    std::fs::rename(&file, &aside).unwrap();
    let mut manager = kept.start().unwrap();
    assert_eq!(volumes(&mut manager), [("a".into(), 0, 1 << 20)]);
    assert!(matches!(manager.execute(add("b=ram:1M")), Err(ManageError::Missing { .. })));
    changed(&mut manager, add("c=ram:1M"));
    assert_eq!(volumes(&mut manager)[1], ("c".into(), 2, 1 << 20), "its number is not given away");
    changed(&mut manager, Request::RemoveVolume { name: "c".into(), force: false });
    assert!(changed(&mut manager, RELOAD)[0].starts_with("volume b is still not served"));
    std::fs::rename(&aside, &file).unwrap();
    assert_eq!(changed(&mut manager, RELOAD)[0], "volume b is served");
    assert_eq!((volumes(&mut manager), targets(&mut manager)), everything, "with its numbers");
    drop(manager);
    std::fs::remove_file(&file).unwrap();
    let mut manager = kept.start().unwrap();
    changed(&mut manager, Request::RemoveVolume { name: "b".into(), force: false });
    drop(manager);
    assert_eq!(volumes(&mut kept.start().unwrap()).len(), 1, "it is not sought any more");
}

#[test]
fn what_differs_for_ever_from_an_edited_configuration_is_so_from_the_next_start_on() {
    let mut kept = Kept::new("pending", &["a=ram:1M"]);
    let mut edited = Kept { directory: kept.directory.clone(), configured: vec!["a=null:1M".into()] };
    let wanted = edited.config();
    let mut manager = Manager::start(kept.config(), Box::new(move || Ok(wanted.clone()))).unwrap();
    assert!(changed(&mut manager, RELOAD)[0].starts_with("not changed: volume a"));
    changed(&mut manager, Request::MapVolume { name: "a".into(), lun: Some(5), target: None, force: false });
    drop(manager);
    let manager = edited.start().unwrap();
    assert_eq!(manager.volumes["a"].spec, "a=null:1M".parse().unwrap());
    drop(manager);
    std::mem::swap(&mut kept, &mut edited);
    std::mem::forget(edited);
}

#[test]
fn a_state_directory_that_is_damaged_newer_or_used_stops_the_start_and_is_not_touched() {
    let kept = Kept::new("refused", &["a=ram:1M"]);
    let refusal = |kept: &Kept| kept.start().map(drop).unwrap_err().to_string();
    let mut manager = kept.start().unwrap();
    changed(&mut manager, add("b=ram:1M"));
    let told = refusal(&kept);
    assert!(told.contains("another server called test") && told.contains("--state-directory"), "{told}");
    drop(manager);
    let good = std::fs::read(kept.changes()).unwrap();
    let newer = String::from_utf8(good.clone()).unwrap().replacen("\"sanwire\":1", "\"sanwire\":99", 1);
    for (content, part) in [(&good[..good.len() - 2], "is damaged"), (newer.as_bytes(), "newer version of Sanwire")] {
        std::fs::write(kept.changes(), content).unwrap();
        let told = refusal(&kept);
        assert!(told.contains(part) && told.contains("mv "), "{told}");
        assert_eq!(std::fs::read(kept.changes()).unwrap(), content);
    }
    std::fs::write(kept.changes(), good).unwrap();
    assert_eq!(volumes(&mut kept.start().unwrap()).len(), 2);
}

#[test]
fn the_status_says_what_differs_and_who_has_said_what_is_there() {
    let kept = Kept::new("status", &["a=ram:1M", "b=ram:1M"]);
    let mut manager = kept.start().unwrap();
    let status = |manager: &mut Manager| match manager.execute(Request::Status) {
        Ok(Answer::Status(status)) => status,
        other => panic!("{other:?}"),
    };
    let first = status(&mut manager);
    assert_eq!(first.deviations, []);
    changed(&mut manager, add("c=ram:1M"));
    changed(&mut manager, Request::RemoveVolume { name: "a".into(), force: false });
    let add_client = Request::AddClient { id: ALICE.into(), settings: ClientSettings::default(), force: false };
    changed(&mut manager, add_client);
    let set = |state| {
        Request::SetAccessState(crate::manage::AccessChange { group: 1, state, target: Some("hyperscsi".into()) })
    };
    changed(&mut manager, set(PortState::Standby));
    let second = status(&mut manager);
    assert!(second.revision > first.revision);
    let origins: Vec<_> = second.volumes.iter().map(|volume| (volume.name.as_str(), volume.origin)).collect();
    assert_eq!(origins, [("b", Origin::CommandLine), ("c", Origin::Management)]);
    let shown: Vec<String> = second
        .deviations
        .iter()
        .map(|Deviation { resource, name, configured, now }| format!("{resource} {name}: {configured:?}, {now:?}"))
        .collect();
    let expected = [
        "volume a: Some(\"ram:1M as logical unit 0\"), None",
        "volume c: None, Some(\"ram:1M as logical unit 2\")",
        "mapping a in iqn.2026-11.org.sanwire:a: Some(\"logical unit 0\"), None",
        &format!("client {ALICE}: None, Some(\"volumes *, read and write\")"),
        "access-state group 1 of hyperscsi: Some(\"active-optimized\"), Some(\"standby\")",
    ];
    assert_eq!(shown, expected);
    drop(manager);
    let mut manager = kept.start().unwrap();
    let again = status(&mut manager);
    assert_eq!((again.deviations, &again.groups), (second.deviations, &second.groups), "also the states");
    changed(&mut manager, set(PortState::ActiveOptimized));
    assert!(status(&mut manager).deviations.iter().all(|deviation| deviation.resource != "access-state"));
}

#[test]
fn a_refusal_has_a_code_that_programs_understand() {
    let mut manager = manager(&["a=ram:1M"], &[]);
    let by = Asker::Signal { signal: "test" };
    for (request, code) in [
        (add("a=ram:1M"), "volume-exists"),
        (add("nonsense"), "volume-text-invalid"),
        (Request::RemoveVolume { name: "b".into(), force: false }, "volume-unknown"),
        (Request::DropClient { client: "nobody".into() }, "client-unknown"),
        (Request::ResizeVolume { name: "a".into(), size: "512".into() }, "resize-refused"),
    ] {
        let response = manager.handle(&by, request);
        let Response::Refused(refusal) = &response else { panic!("{response:?}") };
        assert_eq!(refusal.code, code);
        let json = serde_json::to_string(&response).unwrap();
        assert!(
            json.contains(&format!("\"code\":\"{code}\"")) && json.starts_with("{\"schema\":1,\"refused\":\""),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<Response>(&json).unwrap(), response);
    }
    let of_older = serde_json::from_str::<Response>("{\"refused\": \"why\"}").unwrap();
    assert_eq!(of_older, Response::Refused(Refusal::new("refused", "why")));
    manager.into_target().stop().unwrap();
}

#[test]
fn a_volume_that_is_slow_to_go_keeps_no_other_request_waiting() {
    let kept = Kept::new("slow", &["a=ram:1M"]);
    let desk = ManagementHandle::new(kept.start().unwrap());
    let by = Asker::Signal { signal: "test" };
    let file = kept.directory.join("b.img");
    let added = desk.handle(&by, add(format!("b=file:{},size=1M,delay=flush:15s", file.display())));
    assert!(matches!(added, Response::Done(_)), "{added:?}");
    std::thread::scope(|scope| {
        let remove = Request::RemoveVolume { name: "b".into(), force: false };
        let removal = scope.spawn(|| desk.handle(&by, remove));
        let is_there = || match desk.handle(&by, Request::Status) {
            Response::Done(Answer::Status(status)) => status.volumes.iter().any(|volume| volume.name == "b"),
            other => panic!("{other:?}"),
        };
        while is_there() {
            std::thread::yield_now();
        }
        assert!(matches!(desk.handle(&by, Request::Statistics), Response::Done(Answer::Statistics(_))));
        assert!(!removal.is_finished(), "its store still flushes");
        let server = desk.end();
        assert!(
            removal.is_finished() || matches!(removal.join(), Ok(Response::Done(_))),
            "it is stable before the end"
        );
        server.unwrap().stop().unwrap();
    });
}

#[test]
fn who_has_no_session_is_not_said_to_be_dropped_and_a_pause_is_for_every_wire() {
    let mut manager = manager(&["a=ram:1M"], &[]);
    let iqn = "iqn.2026-11.org.example:host";
    for client in [ALICE, iqn] {
        let client = client.to_owned();
        let error = manager.execute(Request::DropClient { client: client.clone() }).unwrap_err();
        assert_eq!((error.code(), error.to_string()), ("session-unknown", format!("{client} has no session")));
        let (pause, resume) =
            (Request::PauseClient { client: client.clone() }, Request::ResumeClient { client: client.clone() });
        let waits = format!("{client} waits, until it is resumed or the server ends");
        assert_eq!(changed(&mut manager, pause.clone()), [&*waits]);
        assert_eq!(changed(&mut manager, pause), [&*waits]);
        assert_eq!(changed(&mut manager, resume.clone()), [format!("{client} goes on")]);
        assert_eq!(changed(&mut manager, resume), [format!("{client} was not paused")]);
    }
    assert_eq!(manager.execute(Request::PauseClient { client: "nobody".into() }).unwrap_err().code(), "client-unknown");
    for number in 0..1024 {
        changed(&mut manager, Request::PauseClient { client: format!("{iqn}{number}") });
    }
    assert_eq!(manager.execute(Request::PauseClient { client: iqn.into() }).unwrap_err().code(), "paused-too-many");
    manager.into_target().stop().unwrap();
}

#[test]
fn a_reload_gives_a_volume_another_name_and_its_store_is_the_same() {
    let mut kept = Kept::new("renamed", &[]);
    let (file, held) = (kept.directory.join("a.img"), kept.directory.join("held.img"));
    let volume = |name: &str, file: &std::path::Path| format!("{name}=file:{},size=1M", file.display());
    kept.configured = vec![volume("a", &file), volume("held", &held), "r=ram:1M".into()];
    let configured = Arc::new(Mutex::new(kept.config()));
    let source = Arc::clone(&configured);
    let mut manager = Manager::start(kept.config(), Box::new(move || Ok(source.lock().unwrap().clone()))).unwrap();
    kept.configured = vec![volume("b", &file), volume("held", &held), "r2=ram:1M".into()];
    *configured.lock().unwrap() = kept.config();
    let lines = changed(&mut manager, RELOAD);
    for line in ["volume a is not served any more", "volume b is served", "volume r2 is served"] {
        assert!(lines.iter().any(|other| other == line), "{line}: {lines:?}");
    }
    let names: Vec<String> = volumes(&mut manager).into_iter().map(|(name, ..)| name).collect();
    assert!(["b", "held", "r2"].iter().all(|name| names.iter().any(|other| other == name)), "{names:?}");
    let targets = targets(&mut manager);
    assert!(targets.iter().any(|(_, units)| units.iter().any(|(_, volume)| volume == "b")), "{targets:?}");
    assert_eq!(changed(&mut manager, RELOAD), [""; 0]);

    // Something else is there by then.
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    kept.configured[0] = volume("c", &file);
    *configured.lock().unwrap() = kept.config();
    let lines = changed(&mut manager, RELOAD);
    assert!(lines.iter().any(|line| line.starts_with("volume c is not served: ")), "{lines:?}");
    let Ok(Answer::Status(status)) = manager.execute(Request::Status) else { panic!("the status") };
    assert_eq!(status.missing.iter().map(|missing| &*missing.name).collect::<Vec<_>>(), ["c"]);
    std::fs::remove_dir(&file).unwrap();
    let lines = changed(&mut manager, RELOAD);
    assert!(lines.iter().any(|line| line == "volume c is served"), "{lines:?}");
    manager.into_target().stop().unwrap();
}
