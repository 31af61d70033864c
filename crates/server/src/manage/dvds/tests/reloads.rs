//! What becomes of derived volumes when the configuration is read again.

use super::*;
use crate::config::ServerConfig;
use crate::manage::testing::config;

/// A server that is started so, and has another configuration when that is read again.
pub(super) fn reloading(kept: &Kept, after: Vec<String>) -> Manager {
    let state = kept.config().state_directory;
    let again = move || {
        let volumes: Vec<&str> = after.iter().map(String::as_str).collect();
        Ok(ServerConfig { state_directory: state.clone(), ..config(&volumes) })
    };
    Manager::start(kept.config(), Box::new(again)).unwrap()
}

const RELOAD: Request = Request::Reload { force: false, dry_run: false, reset: false };
const FORCED: Request = Request::Reload { force: true, dry_run: false, reset: false };

#[test]
fn a_reload_that_takes_a_parent_away_revokes_only_with_force() {
    let kept = kept_with("dvd-reload", &["other=ram:1M"]);
    let mut manager = reloading(&kept, vec!["other=ram:1M".into()]);
    lines(create(&mut manager, new("disk", "cam")));
    let error = manager.execute(RELOAD).unwrap_err();
    assert!(error.to_string().contains("volume cam is derived from disk, which goes"), "{error}");
    assert_eq!(names(&mut manager), ["disk", "other", "cam"]);
    let told = lines(manager.execute(FORCED));
    assert!(told.iter().any(|line| line.contains("volume cam, which was derived by ctl, is not served")), "{told:?}");
    assert_eq!((names(&mut manager), status(&mut manager).missing.len()), (vec!["other".to_owned()], 0));
    assert!(events(&manager).last().unwrap().contains("cam, which was derived from disk, is revoked"));
    manager.into_target().stop().unwrap();
}

#[test]
fn a_reload_derives_and_revokes_as_the_configuration_says() {
    let kept = kept("dvd-reload-both");
    let disk = kept.configured[0].clone();
    let owned = format!("{disk},owner=10.0.0.9");
    let after = ["part=dvd:cam,principal=any".into(), "cam=dvd:disk,region=1M+1M,principal=any".into(), owned];
    let mut manager = reloading(&kept, after.into());
    let told = lines(manager.execute(RELOAD));
    assert!(told.contains(&"volume disk is owned by 10.0.0.9 now".to_owned()), "{told:?}");
    assert_eq!(names(&mut manager).len(), 3);
    assert!(manager.target().owners().include(&somebody()));
    manager.into_target().stop().unwrap();
    let mut kept = kept;
    kept.configured =
        ["part=dvd:cam,principal=any", "cam=dvd:disk,region=1M+1M,principal=any", &disk].map(String::from).into();
    let mut manager = reloading(&kept, vec![disk]);
    lines(manager.execute(RELOAD));
    assert_eq!((names(&mut manager), events(&manager).len()), (vec!["disk".to_owned()], 2));
    manager.into_target().stop().unwrap();
}

#[test]
fn a_renamed_parent_takes_its_derived_volumes_along() {
    let kept = kept_with("dvd-renamed", &["cam=dvd:disk,region=1M+1M,principal=any"]);
    let renamed = kept.configured[0].replacen("disk=", "store=", 1);
    let mut manager = reloading(&kept, vec![renamed, "cam=dvd:store,region=1M+1M,principal=any".into()]);
    let error = manager.execute(RELOAD).unwrap_err();
    assert!(error.to_string().contains("volume cam is derived from disk, which goes"), "{error}");
    lines(manager.execute(FORCED));
    assert_eq!(names(&mut manager).len(), 2, "{:?}", status(&mut manager).missing);
    manager.into_target().stop().unwrap();
}

#[test]
fn a_grant_that_is_narrowed_in_the_configuration_ends_with_the_reload() {
    let fixed = |rest: &str| format!("fixed=dvd:disk,region=1M+1M,{rest}");
    let below = "below=dvd:fixed,principal=any".to_owned();
    let kept = kept_with("dvd-narrowed", &[&fixed("principal=10.0.0.9,principal=10.0.0.8"), &below]);
    let after = |rest: &str| vec![kept.configured[0].clone(), fixed(rest), below.clone()];
    let mut manager = reloading(&kept, after("principal=10.0.0.8"));
    let before = ["fixed", "below"].map(|name| manager.find(name).unwrap());
    assert!(before[0].1.admits(&somebody()));
    let told = lines(manager.execute(Request::Reload { force: false, dry_run: true, reset: false }));
    for name in ["fixed", "below"] {
        let line = format!("volume {name} would be revoked, and derived anew as it is configured now");
        assert!(told.contains(&line), "{told:?}");
    }
    lines(manager.execute(RELOAD));
    for (name, (lun, old)) in ["fixed", "below"].into_iter().zip(&before) {
        let (now, unit) = manager.find(name).unwrap_or_else(|| panic!("{:?}", status(&mut manager).missing));
        assert!(old.is_revoked() && !unit.admits(&somebody()), "{name}");
        assert_eq!((now, unit.identity().uuid()), (*lun, old.identity().uuid()), "hosts find the disk that they know");
    }
    drop(before);
    manager.into_target().stop().unwrap();
    // Its time is over by now.
    let mut manager = reloading(&kept, after("principal=10.0.0.8,until=2026-01-01T00:00:00Z"));
    let unit = manager.find("fixed").unwrap().1;
    lines(manager.execute(RELOAD));
    assert!(unit.is_revoked() && names(&mut manager) == ["disk"]);
    drop(unit);
    manager.into_target().stop().unwrap();
}

fn somebody() -> sanwire_core::Principal {
    let address = Some(sanwire_core::HostAddress::Ip("10.0.0.9".parse().unwrap()));
    sanwire_core::Principal { address, ..sanwire_core::Principal::default() }
}
