//! Who uses a volume keeps it: nobody takes it away by mistake.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use sanwire_core::Lun;
use sanwire_hyperscsi::Identity;
use sanwire_scsi::Status;
use sanwire_server::{
    AllowList, Answer, Asker, ClientConfig, ClientSettings, Manager, Origin, Request, Response, Secret, ServerConfig,
    VolumeConfig, Wire,
};

use super::hyperscsi::{self, Driver};
use super::initiator::{BLOCK_BYTES, GOOD, Initiator, Said};
use super::{PROMPT, config};

pub(super) const TARGET: &str = "iqn.2026-11.org.sanwire:prompt";

/// The key of a HyperSCSI client.
const KEY: [u8; 32] = [3; 32];

/// A server that is managed, with one volume.
pub(super) struct Managed {
    pub(super) manager: Manager,
    /// What the configuration says when it is read again.
    pub(super) configured: Arc<Mutex<ServerConfig>>,
}

impl Managed {
    pub(super) fn new() -> Managed {
        Managed::start(ServerConfig { shards: 1, ..config() })
    }

    fn start(config: ServerConfig) -> Managed {
        let configured = Arc::new(Mutex::new(config.clone()));
        let source = Arc::clone(&configured);
        let again = Box::new(move || Ok(source.lock().unwrap().clone()));
        Managed { manager: Manager::start(config, again).unwrap(), configured }
    }

    /// A session that has only looked around.
    pub(super) fn login(&self) -> Initiator {
        let portal = self.manager.target().wires().iter().find_map(Wire::portal).unwrap().0;
        Initiator::login(portal, TARGET, 1)
    }

    /// A HyperSCSI client that uses the volume, and its id.
    fn attach(&self) -> (Driver, String) {
        let address = super::hyperscsi_address(self.manager.target());
        let mut driver = hyperscsi::connect(address, KEY);
        assert!(goes_on(&mut driver));
        (driver, Identity::from_private(KEY).unwrap().client_id().to_string())
    }

    pub(super) fn ask(&mut self, request: Request) -> Result<Vec<String>, String> {
        match self.manager.handle(&Asker::Signal { signal: "test" }, request) {
            Response::Done(Answer::Changed(lines)) => Ok(lines),
            Response::Refused(refusal) => Err(refusal.reason),
            Response::Done(other) => panic!("{other:?}"),
        }
    }

    fn is_served(&self) -> bool {
        self.manager.target().units().iter().iter().any(|(_, disk)| disk.identity().name() == "prompt")
    }
}

/// Whether the client can still use the volume: it flushes it, once it has heard of what has changed.
fn goes_on(driver: &mut Driver) -> bool {
    let synchronize_cache = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    (0..4).any(|_| driver.ask(PROMPT, synchronize_cache.into(), &[]).0 == Status::Good)
}

fn seeing(volumes: &str) -> ClientSettings {
    ClientSettings { volumes: Some(vec![volumes.into()]), ..ClientSettings::default() }
}

fn remove(force: bool) -> Request {
    Request::RemoveVolume { name: "prompt".into(), force }
}

#[test]
fn a_volume_in_use_is_removed_by_force_only() {
    let mut managed = Managed::new();
    let mut initiator = managed.login();
    assert_eq!(initiator.read(0, 0), 0);
    let refused = managed.ask(remove(false)).unwrap_err();
    assert!(
        refused.starts_with("volume prompt is in use by initiator iqn.2026-11.org.sanwire:test at 127.0.0.1:"),
        "{refused}"
    );
    assert!(refused.ends_with("have it detached there first, or add --force"), "{refused}");
    assert_eq!(initiator.read(0, 0), 0, "it goes on");
    let unmap = Request::UnmapVolume { name: "prompt".into(), target: TARGET.into(), force: false };
    assert!(managed.ask(unmap).unwrap_err().contains("is in use by initiator"));
    let other = Request::MapVolume { name: "prompt".into(), lun: Some(7), target: Some(TARGET.into()), force: false };
    assert!(managed.ask(other).unwrap_err().contains("is in use by initiator"), "another number there");
    let over_hyperscsi = Request::MapVolume { name: "prompt".into(), lun: Some(7), target: None, force: false };
    managed.ask(over_hyperscsi).expect("nobody uses it there");
    managed.ask(remove(true)).expect("that is meant");
    assert!(!managed.is_served());
}

#[test]
fn a_volume_that_nobody_uses_any_more_can_be_removed() {
    let mut managed = Managed::new();
    let mut initiator = managed.login();
    assert_eq!(initiator.read(0, 0), 0);
    assert!(managed.ask(remove(false)).is_err());
    drop(initiator);
    super::wait_until("the session is over", || managed.manager.target().sessions().is_empty());
    managed.ask(remove(false)).expect("nobody is there");
}

#[test]
fn who_has_only_looked_around_keeps_no_volume() {
    let mut managed = Managed::new();
    let _initiator = managed.login();
    managed.ask(remove(false)).expect("it has used nothing");
    assert!(!managed.is_served());
}

#[test]
fn a_reload_takes_no_volume_away_from_its_users() {
    let mut managed = Managed::new();
    let mut initiator = managed.login();
    assert_eq!(initiator.read(0, 0), 0);
    let reload = |force, dry_run| Request::Reload { force, dry_run, reset: false };
    {
        let mut configured = managed.configured.lock().unwrap();
        configured.volumes.retain(|volume| *volume.spec.name != *"prompt");
        configured.exports.clear();
    }
    let would = managed.ask(reload(false, true)).unwrap();
    assert!(would.contains(&"volume prompt would not be served any more".to_owned()), "{would:?}");
    assert!(would.iter().any(|line| line.contains("is in use by initiator")), "{would:?}");
    assert!(managed.is_served(), "it was only asked");
    let refused = managed.ask(reload(false, false)).unwrap_err();
    assert!(refused.contains("nothing was reloaded") && refused.contains("volume prompt is in use by"), "{refused}");
    assert!(managed.is_served());
    assert_eq!(initiator.read(0, 0), 0, "it goes on");
    let done = managed.ask(reload(true, false)).unwrap();
    assert!(done.contains(&"volume prompt is not served any more".to_owned()), "{done:?}");
    assert!(!managed.is_served());
}

#[test]
fn a_reload_takes_no_target_away_from_its_users() {
    let mut managed = Managed::new();
    let mut initiator = managed.login();
    assert_eq!(initiator.read(0, 0), 0);
    managed.configured.lock().unwrap().exports.clear();
    let refused = managed.ask(Request::Reload { force: false, dry_run: false, reset: false }).unwrap_err();
    assert!(refused.contains("volume prompt is in use by initiator"), "{refused}");
    assert_eq!(initiator.read(0, 0), 0, "it goes on");
}

/// A server that remembers who has used its volume, in a directory that is to be removed at the end.
fn remembering(test: &str) -> (PathBuf, ServerConfig) {
    sanwire_store_file::register();
    let directory = std::env::temp_dir().join(format!("sanwire-{test}-{}", std::process::id()));
    let spec = format!("prompt=file:{},size=1M", directory.join("prompt.img").display()).parse().unwrap();
    std::fs::create_dir_all(&directory).unwrap();
    let volumes = vec![VolumeConfig { lun: Lun::new(PROMPT).unwrap(), spec, origin: Origin::CommandLine }];
    let state_directory = Some(directory.join("state"));
    (directory, ServerConfig { shards: 1, volumes, state_directory, ..config() })
}

/// A host that has the volume mounted, and does nothing.
#[test]
fn a_host_that_is_idle_after_a_restart_of_the_server_keeps_its_volume() {
    let (directory, config) = remembering("restart");
    let mut managed = Managed::start(config.clone());
    let mut initiator = managed.login();
    assert_eq!(initiator.read(0, 0), 0);
    managed.manager.into_target().stop().unwrap();

    managed = Managed::start(config.clone());
    let refused = managed.ask(remove(false)).unwrap_err();
    assert!(refused.contains("which was there when the server ended and may come back"), "{refused}");
    let _idle = managed.login();
    let refused = managed.ask(remove(false)).unwrap_err();
    assert!(refused.starts_with("volume prompt is in use by initiator") && !refused.contains("may come"), "{refused}");
    managed.manager.into_target().stop().unwrap();

    managed = Managed::start(config);
    managed.ask(remove(true)).expect("that is meant");
    managed.manager.into_target().stop().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_server_that_had_the_state_directory_in_between_makes_none_forget_who_uses_its_volumes() {
    let ((directory, config), (other_directory, other)) = (remembering("beside"), remembering("beside-other"));
    let other = ServerConfig { name: "other".into(), state_directory: config.state_directory.clone(), ..other };
    for config in [config.clone(), other] {
        let managed = Managed::start(config);
        let mut initiator = managed.login();
        assert_eq!(initiator.read(0, 0), 0);
        managed.manager.into_target().stop().unwrap();
    }
    let mut managed = Managed::start(config);
    let refused = managed.ask(remove(false)).unwrap_err();
    assert!(refused.contains("which was there when the server ended and may come back"), "{refused}");
    managed.manager.into_target().stop().unwrap();
    [directory, other_directory].iter().for_each(|directory| std::fs::remove_dir_all(directory).unwrap());
}

/// Its settings change while it is away.
#[test]
fn a_client_that_is_not_back_after_a_restart_of_the_server_keeps_its_volume() {
    let (directory, config) = remembering("away");
    let managed = Managed::start(config.clone());
    let (driver, id) = managed.attach();
    managed.manager.into_target().stop().unwrap();
    drop(driver);
    let mut managed = Managed::start(config);
    let add = |volumes, force| Request::AddClient { id: id.clone(), settings: seeing(volumes), force };
    let refused = managed.ask(add("delayed", false)).unwrap_err();
    assert!(refused.contains("which was there when the server ended and may come back"), "{refused}");
    managed.ask(add("delayed", true)).expect("that is meant");
    managed.manager.into_target().stop().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_change_of_a_client_takes_no_volume_away_that_it_uses() {
    let mut managed = Managed::new();
    let (mut driver, id) = managed.attach();
    let add = |volumes, force| Request::AddClient { id: id.clone(), settings: seeing(volumes), force };
    let set = |volumes, force| Request::SetClient { client: id.clone(), settings: seeing(volumes), force };
    let in_use = format!("volume prompt is in use by client {id} at 127.0.0.1:");
    let refused = managed.ask(add("delayed", false)).unwrap_err();
    assert!(refused.starts_with("nothing was changed") && refused.contains(&in_use), "{refused}");
    managed.ask(add("p*", false)).expect("it sees the volume on");
    assert!(managed.ask(set("delayed", false)).unwrap_err().contains(&in_use));
    managed.ask(set("prompt", false)).expect("it sees the volume on");
    assert!(managed.ask(Request::RemoveClient { client: id.clone(), force: false }).unwrap_err().contains(&in_use));
    let configured = ClientConfig::new(id.parse().unwrap()).with(&seeing("delayed")).unwrap();
    managed.configured.lock().unwrap().clients = vec![configured];
    let refused = managed.ask(Request::Reload { force: false, dry_run: false, reset: false }).unwrap_err();
    assert!(refused.contains(&in_use), "the configuration, which was edited since, would hold: {refused}");
    assert!(goes_on(&mut driver));
    managed.ask(set("delayed", true)).expect("that is meant");
    assert!(!goes_on(&mut driver));
    managed.ask(Request::RemoveClient { client: id.clone(), force: false }).expect("it has the volume no more");
}

#[test]
fn a_client_is_not_put_back_to_a_configuration_that_hides_a_volume_it_uses() {
    let configured = Identity::from_private(KEY).unwrap().client_id();
    let clients = vec![ClientConfig::new(configured).with(&seeing("delayed")).unwrap()];
    let mut managed = Managed::start(ServerConfig { shards: 1, clients, ..config() });
    let set = Request::SetClient { client: configured.to_string(), settings: seeing("p*"), force: false };
    managed.ask(set).expect("nobody uses a volume");
    let (mut driver, id) = managed.attach();
    let reset = |force| Request::ResetClient { client: id.clone(), force };
    let refused = managed.ask(reset(false)).unwrap_err();
    assert!(refused.contains(&format!("volume prompt is in use by client {id} at 127.0.0.1:")), "{refused}");
    assert!(goes_on(&mut driver));
    managed.ask(reset(true)).expect("that is meant");
    assert!(!goes_on(&mut driver));
}

#[test]
fn a_reload_that_hides_a_volume_from_its_user_is_refused() {
    let mut managed = Managed::new();
    let (mut driver, id) = managed.attach();
    let in_use = format!("volume prompt is in use by client {id} at 127.0.0.1:");
    let reload = |force, dry_run| Request::Reload { force, dry_run, reset: false };
    let only_elsewhere = AllowList::new(vec!["10.0.0.0/8".parse().unwrap()]);
    managed.configured.lock().unwrap().allow = only_elsewhere;
    assert!(managed.ask(reload(false, false)).unwrap_err().contains(&in_use), "`allow` permits it no more");
    let client = ClientConfig::new(id.parse().unwrap()).with(&seeing("delayed")).unwrap();
    managed.configured.lock().unwrap().clients = vec![client];
    let would = managed.ask(reload(false, true)).unwrap();
    let line = would.iter().find(|line| line.starts_with(&in_use));
    assert!(line.is_some_and(|line| line.ends_with("a reload is refused without --force")), "{would:?}");
    let refused = managed.ask(reload(false, false)).unwrap_err();
    assert!(refused.contains("nothing was reloaded") && refused.contains(&in_use), "{refused}");
    assert!(goes_on(&mut driver));
    managed.ask(reload(true, false)).expect("that is meant");
    assert!(!goes_on(&mut driver));
}

#[test]
fn a_client_that_writes_to_a_volume_may_only_read_it_by_force_only() {
    let mut managed = Managed::new();
    let (mut driver, id) = managed.attach();
    let in_use = format!("volume prompt is in use by client {id} at 127.0.0.1:");
    let silenced = || ClientSettings { read_only: Some(true), ..ClientSettings::default() };
    let add = |force| Request::AddClient { id: id.clone(), settings: silenced(), force };
    assert!(managed.ask(add(false)).unwrap_err().contains(&in_use));
    let client = ClientConfig::new(id.parse().unwrap()).with(&silenced()).unwrap();
    managed.configured.lock().unwrap().clients = vec![client];
    let refused = managed.ask(Request::Reload { force: false, dry_run: false, reset: false }).unwrap_err();
    assert!(refused.contains("nothing was reloaded") && refused.contains(&in_use), "{refused}");
    assert!(goes_on(&mut driver));
    managed.ask(add(true)).expect("that is meant");
    let other_name = ClientSettings { name: Some("reader".into()), ..silenced() };
    let set = Request::SetClient { client: id.clone(), settings: other_name, force: false };
    managed.ask(set).expect("it could not write before");
}

#[test]
fn a_client_gets_no_secret_beside_an_iscsi_target_that_is_open_without_a_word() {
    let mut managed = Managed::new();
    let id = Identity::from_private(KEY).unwrap().client_id().to_string();
    let settings = || ClientSettings { psk: Some(Secret([5; 32])), ..ClientSettings::default() };
    let add = |force| Request::AddClient { id: id.clone(), settings: settings(), force };
    for force in [false, true] {
        let refused = managed.ask(add(force)).unwrap_err();
        assert!(refused.contains(TARGET) && refused.contains("guard HyperSCSI only"), "{refused}");
    }
    managed.configured.lock().unwrap().exports.iter_mut().for_each(|export| export.is_meant_open = true);
    managed.ask(Request::Reload { force: false, dry_run: false, reset: false }).unwrap();
    managed.ask(add(false)).expect("it is meant to be open");
}

/// What was counted of the connections over a wire: commands, bytes read, bytes written, errors.
fn counted(managed: &mut Managed, wire: &str) -> Vec<[u64; 4]> {
    let response = managed.manager.handle(&Asker::Signal { signal: "test" }, Request::Statistics);
    let Response::Done(Answer::Statistics(statistics)) = response else { panic!("{response:?}") };
    let own = statistics.connections.iter().filter(|connection| connection.wire == wire);
    own.map(|it| [it.commands, it.read_bytes, it.written_bytes, it.errors]).collect()
}

#[test]
fn sessions_of_every_wire_have_the_same_counters() {
    let mut managed = Managed::new();
    let mut initiator = managed.login();
    let (mut driver, _) = managed.attach();
    let before = ["iscsi", "hyperscsi"].map(|wire| counted(&mut managed, wire));
    assert_eq!(before.each_ref().map(Vec::len), [1, 1]);
    let beyond_the_end = [0x28, 0, 0xff, 0, 0, 0, 0, 0, 1, 0];
    assert_eq!(initiator.read(0, 0), 0);
    let written = initiator.write(0, 0, 1);
    assert_eq!(initiator.hear(), Said::Status(written, GOOD));
    assert_eq!(initiator.ask(0, beyond_the_end.into(), &[]).0, Status::CheckCondition);
    let write_10 = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    assert_eq!(driver.ask(PROMPT, write_10.into(), &[1; BLOCK_BYTES]).0, Status::Good);
    let after = ["iscsi", "hyperscsi"].map(|wire| counted(&mut managed, wire));
    let more = |wire: usize| std::array::from_fn(|count| after[wire][0][count] - before[wire][0][count]);
    let block = BLOCK_BYTES as u64;
    assert_eq!((more(0), more(1)), ([3, block, block, 1], [1, 0, block, 0]));
}

#[test]
fn a_session_is_ended_on_the_condition_of_the_revision_that_is_told_with_it() {
    let mut managed = Managed::new();
    let mut initiator = managed.login();
    assert_eq!(initiator.read(0, 0), 0);
    let [session] = &managed.manager.target().sessions()[..] else { panic!("one session") };
    let (id, revision) = (session.id.clone(), session.revision);
    let drop = || Box::new(Request::DropSession { session: id.clone() });
    for wrong in [revision - 1, revision + 1] {
        for request in [drop(), Box::new(Request::DryRun { request: drop() })] {
            let refused = managed.ask(Request::IfRevision { revision: wrong, request }).unwrap_err();
            assert!(refused.contains(&format!("has revision {revision} now, not {wrong}")), "{refused}");
        }
    }
    assert_eq!(initiator.read(0, 0), 0, "its session goes on");
    let dry = Box::new(Request::DryRun { request: drop() });
    let told = managed.ask(Request::IfRevision { revision, request: dry }).unwrap();
    assert!(told[0].contains("would be ended"), "{told:?}");
    managed.ask(Request::IfRevision { revision, request: drop() }).unwrap();
    assert_eq!(initiator.hear(), Said::End);
}
