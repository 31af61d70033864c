use sanwire_hyperscsi::{Identity, Recovery, random};
use sanwire_io::file::EngineKind;
use sanwire_iscsi::Authentication;

use super::*;

fn config(volumes: &[&str]) -> TargetConfig {
    let volumes: Vec<VolumeConfig> = (0..)
        .zip(volumes)
        .map(|(lun, spec)| VolumeConfig { lun: Lun::new(lun).unwrap(), spec: spec.parse().unwrap() })
        .collect();
    let exports =
        volumes.iter().map(|volume| ExportConfig::of_volume(&volume.spec.name, AllowList::default()).unwrap());
    TargetConfig {
        name: "test".into(),
        identity: Identity::from_private(random().unwrap()).unwrap(),
        psk: [0; 32],
        wires: vec!["hs-ip:127.0.0.1:1".parse().unwrap()].into_iter().map(any_port).collect(),
        allow: AllowList::default(),
        exports: exports.collect(),
        volumes,
        discovery: Authentication::default(),
        state_directory: None,
        shards: 1,
        memory_bytes: TargetConfig::MEMORY_BYTES_DEFAULT,
        ring_bytes: 1 << 20,
        engine: EngineKind::Auto,
        recovery: Recovery::default(),
    }
}

fn any_port(wire: crate::Wire) -> crate::Wire {
    match wire {
        crate::Wire::HsIp { mut address } => {
            address.set_port(0);
            crate::Wire::HsIp { address }
        }
        other => other,
    }
}

fn manager(before: &[&str], after: &'static [&'static str]) -> Manager {
    let config = config(before);
    let target = Target::start(config.clone()).unwrap();
    Manager::new(target, config, Box::new(move || Ok(self::config(after))))
}

fn volumes(manager: &mut Manager) -> Vec<(String, u16, u64)> {
    let Ok(Answer::Status(status)) = manager.execute(Request::Status) else { panic!("the status") };
    status.volumes.into_iter().map(|volume| (volume.name, volume.lun, volume.size_bytes)).collect()
}

fn targets(manager: &mut Manager) -> Vec<(String, Vec<(u16, String)>)> {
    let Ok(Answer::Status(status)) = manager.execute(Request::Status) else { panic!("the status") };
    status.targets.into_iter().map(|target| (target.name, target.units)).collect()
}

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
    };
    let own = "iqn.2026-11.org.sanwire:a";
    assert_eq!(changed(&mut manager, add("b=ram:2M", None)), ["volume b is served"], "no wire of iSCSI");
    let lines = changed(&mut manager, add("c=ram:3M", Some(own)));
    assert_eq!(lines, [format!("volume c is served, as logical unit 1 of {own}")]);
    assert_eq!(targets(&mut manager)[0], (own.into(), vec![(0, "a".into()), (1, "c".into())]));
    assert!(matches!(manager.execute(add("a=ram:1M", None)), Err(ManageError::Taken(_))));
    assert!(matches!(manager.execute(add("d=ram:1M", Some("iqn.x"))), Err(ManageError::NoTarget(_))));
    assert!(matches!(manager.execute(add("nonsense", None)), Err(ManageError::Spec(_))));

    let resize = |size: &str| Request::ResizeVolume { name: "b".into(), size: size.into() };
    assert_eq!(changed(&mut manager, resize("4M")), ["volume b has 4 MiB now, 2 MiB before"]);
    assert!(manager.execute(resize("1M")).unwrap_err().to_string().contains("never made shorter"));
    assert!(matches!(manager.execute(resize("much")), Err(ManageError::Size(_))));

    changed(&mut manager, Request::RemoveVolume { name: "a".into() });
    assert_eq!(volumes(&mut manager), [("b".into(), 1, 4 << 20), ("c".into(), 2, 3 << 20)]);
    assert_eq!(targets(&mut manager)[0], (own.into(), vec![(1, "c".into())]));
    assert!(matches!(manager.execute(Request::RemoveVolume { name: "a".into() }), Err(ManageError::NoVolume(_))));
    manager.into_target().stop().unwrap();
}

#[test]
fn a_reload_applies_differences_only() {
    let mut manager = manager(
        &["stays=ram:1M", "goes=ram:1M", "grows=ram:1M", "differs=ram:1M"],
        &["comes=ram:1M", "grows=ram:2M", "differs=null:1M", "stays=ram:1M"],
    );
    let lines = changed(&mut manager, Request::Reload);
    for expected in ["volume comes is served", "volume goes is not served any more", "volume grows has 2 MiB now"] {
        assert!(lines.iter().any(|line| line.starts_with(expected)), "{expected}\n{lines:?}");
    }
    assert!(lines.iter().any(|line| line.starts_with("not changed: volume differs")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("stays")), "{lines:?}");
    let found = volumes(&mut manager);
    let expected = [("stays", 0, 1 << 20), ("grows", 2, 2 << 20), ("differs", 3, 1 << 20), ("comes", 4, 1 << 20)];
    assert_eq!(found, expected.map(|(name, lun, size)| (name.to_owned(), lun, size)));
    assert_eq!(changed(&mut manager, Request::Reload).len(), 1, "only what differs for ever");
    manager.into_target().stop().unwrap();
}

#[test]
fn a_reload_that_fails_changes_nothing() {
    let mut manager = manager(&["a=ram:1M"], &["b=ram:1M", "c=file:/nowhere/at/all"]);
    assert!(matches!(manager.execute(Request::Reload), Err(ManageError::Open(_))));
    assert_eq!(volumes(&mut manager), [("a".into(), 0, 1 << 20)]);
    assert_eq!(targets(&mut manager).len(), 1);
    manager.into_target().stop().unwrap();
}

#[test]
fn requests_are_written_as_json() {
    let request: Request = serde_json::from_str(r#"{"do": "add-volume", "volume": "disk1=ram:1G"}"#).unwrap();
    assert_eq!(request, Request::AddVolume { volume: "disk1=ram:1G".into(), target: None });
    let misspelt = r#"{"do": "add-volume", "volume": "a=ram:1M", "traget": "x"}"#;
    assert!(serde_json::from_str::<Request>(misspelt).is_err());
}
