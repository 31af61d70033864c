//! Derived volumes whose parents go while they come, and others of the same name.

use data_encoding::BASE64;

use super::*;
use crate::config::{Origin, VolumeConfig};
use crate::manage::slow::Next;
use crate::manage::testing::work_until;

/// Goes on with the removal of a disk until that is not found any more; gives what is left of it.
fn until_removed(manager: &mut Manager, request: Request) -> Step {
    let mut removing = manager.begin(request).unwrap();
    while manager.find("disk").is_some() {
        removing = go_on(manager, work(removing)).unwrap();
    }
    removing
}

#[test]
fn a_parent_that_is_removed_while_it_is_derived_from_leaves_nothing_behind() {
    let kept = kept("dvd-race");
    let mut manager = kept.start().unwrap();
    let Ok(Step::Slow(opening)) = manager.begin(Request::CreateDvd(new("disk", "cam"))) else { panic!("it is opened") };
    let opened = opening.run();
    let removing = until_removed(&mut manager, remove("disk", false));
    let Err(error) = go_on(&mut manager, opened) else { panic!("it is served") };
    assert!(error.to_string().contains("volume disk, from which it is derived, is not served"), "{error}");
    let Next::Over(removed) = work(removing) else { panic!("it waits for what was opened only") };
    assert_eq!(lines(*removed), ["volume disk is not served any more"]);
    assert!(names(&mut manager).is_empty());
    manager.into_target().stop().unwrap();
}

#[test]
fn a_parent_that_is_about_to_be_removed_is_not_derived_from() {
    let kept = kept("dvd-going");
    let mut manager = kept.start().unwrap();
    let removing = manager.begin(remove("disk", false)).unwrap();
    let error = create(&mut manager, new("disk", "cam")).unwrap_err();
    assert!(error.code() == "volume-busy" && error.to_string().contains("disk is just being removed"), "{error}");
    drop(removing);
    lines(create(&mut manager, new("disk", "cam")));
    manager.into_target().stop().unwrap();
}

#[test]
fn a_volume_that_is_derived_while_the_users_of_its_parent_are_sought_keeps_that_in_service() {
    let kept = kept("dvd-just-in-time");
    let mut manager = kept.start().unwrap();
    let Ok(Step::Slow(opening)) = manager.begin(Request::CreateDvd(new("disk", "cam"))) else { panic!("it is opened") };
    let mut removing = manager.begin(remove("disk", false));
    assert!(matches!(go_on(&mut manager, opening.run()), Ok(Step::Done(_))), "nobody has said that it goes");
    let error = loop {
        match removing {
            Ok(step) => removing = go_on(&mut manager, work(step)),
            Err(error) => break error,
        }
    };
    assert!(error.code() == "volume-has-derived" && error.to_string().contains("cam is derived"), "{error}");
    assert_eq!(names(&mut manager), ["disk", "cam"]);
    manager.into_target().stop().unwrap();
}

#[test]
fn who_had_the_parent_in_hand_when_that_was_removed_derives_nothing_from_it() {
    let kept = kept("dvd-too-late");
    let mut manager = kept.start().unwrap();
    let spec = new("disk", "cam").spec(None).unwrap();
    let opener = manager.target().volume_opener();
    let parent = opener.parent_of(&spec);
    let removing = until_removed(&mut manager, remove("disk", true));
    let volume = VolumeConfig { lun: sanwire_core::Lun::new(7).unwrap(), spec, origin: Origin::Management };
    let error = opener.open_from(parent.as_ref(), &volume, Acceptance::Renewed, 7).map(drop).unwrap_err();
    assert!(error.to_string().contains("was revoked"), "{error}");
    drop(parent);
    assert!(matches!(work(removing), Next::Over(result) if result.is_ok()));
    manager.into_target().stop().unwrap();
}

#[test]
fn a_reload_serves_nothing_whose_parent_has_gone_while_it_was_opened() {
    let kept = kept("dvd-reload-race");
    let after = vec![kept.configured[0].clone(), "cam=dvd:disk,principal=any".into()];
    let mut manager = reloads::reloading(&kept, after);
    let step = manager.begin(Request::Reload { force: true, dry_run: false, reset: false }).unwrap();
    let opened = work_until(&mut manager, step, "opening volumes");
    let removing = until_removed(&mut manager, remove("disk", true));
    let Err(error) = go_on(&mut manager, opened) else { panic!("it is served") };
    assert!(error.to_string().contains("volume disk, from which it is derived, is not served"), "{error}");
    assert!(names(&mut manager).is_empty());
    assert!(matches!(work(removing), Next::Over(result) if result.is_ok()));
    manager.into_target().stop().unwrap();
}

#[test]
fn a_reload_without_force_revokes_nothing_that_was_derived_while_it_opened_volumes() {
    let kept = kept("dvd-reload-late");
    let mut manager = reloads::reloading(&kept, vec!["other=ram:1M".into()]);
    let step = manager.begin(Request::Reload { force: false, dry_run: false, reset: false }).unwrap();
    let opened = work_until(&mut manager, step, "opening volumes");
    // That of a parent that is itself being reloaded is refused; this one is not.
    let made = create(&mut manager, new("disk", "cam"));
    let result = go_on(&mut manager, opened).map(drop);
    match made {
        Ok(_) => {
            let error = result.unwrap_err();
            assert!(error.to_string().contains("volume cam is derived from disk, which goes"), "{error}");
            assert_eq!(names(&mut manager), ["disk", "cam"]);
        }
        Err(error) => panic!("{error}"),
    }
    manager.into_target().stop().unwrap();
}

/// Whoever may read the parent on its terms only does not read it by a volume that was just being opened.
#[test]
fn a_volume_whose_parent_is_guarded_better_while_it_is_opened_is_so_too() {
    for is_list in [false, true] {
        let kept = kept_with(&format!("dvd-level-race-{is_list}"), &["secret=ram:16M"]);
        let mut manager = with_a_secret(&kept);
        let create = |new: NewDvd| match is_list {
            true => Request::CreateDvds(NewDvds { dvds: vec![new] }),
            false => Request::CreateDvd(new),
        };
        let secure = |manager: &mut Manager, level: &str| {
            let (security, name) = (Some(level.to_owned()), "secret".to_owned());
            drop(lines(manager.execute(Request::SetVolume { name, security, protected: None, owners: None })));
        };
        let opened = work(manager.begin(create(new("secret", "cam"))).unwrap());
        let low = NewDvd { security: Some("none".into()), ..new("secret", "low") };
        let lower = work(manager.begin(create(low)).unwrap());
        secure(&mut manager, "hash");
        assert!(matches!(go_on(&mut manager, opened), Ok(Step::Done(_))));
        let Err(error) = go_on(&mut manager, lower) else { panic!("it is served") };
        assert_eq!(error.code(), "derivation-invalid", "{error}");
        let [parent, cam] = ["secret", "cam"].map(|name| volume(&mut manager, name).security);
        assert_eq!(cam, parent);
        assert_eq!(names(&mut manager), ["disk", "secret", "cam"]);
        manager.into_target().stop().unwrap();
    }
}

/// Lets everything through.
const PROGRAM: &str = r#"(module
  (memory (export "memory") 1)
  (global (export "sanwire_abi_1") i32 (i32.const 0))
  (data (i32.const 0)
    "\00\04\00\00" "\00\08\00\00" "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00" "\00\0c\00\00" "\00\00\00\00"
    "\01\00\00\00" "\00\00\00\00\00\00\00\00\00\00\00\00")
  (func (export "judge") (result i32) (i32.const 1)))"#;

#[test]
fn nobody_gets_a_name_before_what_was_made_for_it_in_vain_is_gone() {
    let kept = kept("dvd-undone");
    let mut manager = kept.start().unwrap();
    let program = Some(BASE64.encode(&wat::parse_str(PROGRAM).unwrap()));
    let other = NewDvd { program, ..new("disk", "cam") };
    let far = NewDvd { regions: vec!["99G+1M".into()], ..other.clone() };
    let mut step = manager.begin(Request::CreateDvd(far)).unwrap();
    while !matches!(&step, Step::Slow(slow) if slow.what == "undoing what was begun") {
        step = go_on(&mut manager, work(step)).unwrap();
    }
    let module = manager.target().programs().module_file("cam").unwrap();
    assert!(module.exists());
    assert_eq!(create(&mut manager, other.clone()).unwrap_err().code(), "volume-busy");
    let Err(error) = go_on(&mut manager, work(step)) else { panic!("it was refused") };
    assert!(error.code() == "derivation-invalid" && !module.exists(), "{error}");
    lines(create(&mut manager, other));
    assert!(module.exists());
    manager.into_target().stop().unwrap();
}
