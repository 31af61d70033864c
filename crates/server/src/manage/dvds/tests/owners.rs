//! What owners may do who may not manage the server.

use sanwire_core::{ClientId, HostAddress, Principal};

use super::ends::end;
use super::*;

const OWNER: ClientId = ClientId([7; 16]);

fn principal(client: u8) -> Principal {
    let address = Some(HostAddress::Ip("10.0.0.9".parse().unwrap()));
    Principal { address, client: Some(ClientId([client; 16])), ..Principal::default() }
}

#[test]
fn an_owner_derives_lists_and_revokes_what_is_its_own_and_nothing_else() {
    let kept = kept_with("dvd-owner", &[&format!("mine=ram:1M,owner=key:{OWNER}"), "other=ram:1M"]);
    let mut manager = kept.start().unwrap();
    let owner = principal(7);
    assert!(manager.target().owners().include(&owner) && !manager.target().owners().include(&principal(8)));
    let mut ask = |request: Request| {
        let step = manager.begin_as_owner(&owner, request)?;
        match step {
            Step::Done(answer) => Ok(answer),
            Step::Slow(slow) => match slow.run() {
                crate::manage::slow::Next::Then(then) => match then(&mut manager)? {
                    Step::Done(answer) => Ok(answer),
                    Step::Slow(slow) => match slow.run() {
                        crate::manage::slow::Next::Over(result) => *result,
                        crate::manage::slow::Next::Then(_) => panic!("it goes on"),
                    },
                },
                crate::manage::slow::Next::Over(result) => *result,
            },
        }
    };
    lines(ask(Request::CreateDvd(new("mine", "cam"))));
    lines(ask(Request::CreateDvd(new("cam", "part"))));
    for request in [
        Request::CreateDvd(new("other", "x")),
        Request::CreateDvd(new("nobody", "x")),
        Request::CreateDvd(NewDvd { target: Some("iqn.2026-11.org.sanwire:other".into()), ..new("mine", "x") }),
        Request::Dvds { parent: Some("other".into()) },
        Request::Dvd { name: "other".into() },
        end("mine", None),
        end("other", None),
        revoke("mine"),
        revoke("other"),
        remove("cam", true),
        Request::Status,
        Request::AddVolume { volume: "x=ram:1M".into(), target: None, renew: false, adopt: false },
        Request::SetVolume { name: "mine".into(), security: None, protected: None, owners: Some(vec!["any".into()]) },
        Request::InPools { pools: Vec::new(), request: Request::CreateDvd(new("mine", "x")).into() },
    ] {
        let error = ask(request.clone()).expect_err(&format!("{request:?}"));
        assert_eq!(error.code(), "not-permitted", "{request:?}: {error}");
    }
    let Ok(Answer::Dvds(seen)) = ask(Request::Dvds { parent: None }) else { panic!("a list") };
    assert_eq!(seen.iter().map(|dvd| &*dvd.name).collect::<Vec<_>>(), ["cam", "part"]);
    assert!(matches!(ask(Request::Dvd { name: "part".into() }), Ok(Answer::Dvd(_))));
    for request in [end("part", Some("1h")), Request::DryRun { request: end("part", Some("2h")).into() }] {
        let told = lines(ask(request));
        assert!(told.len() == 1 && told[0].contains("end"), "{told:?}");
    }
    lines(ask(Request::DryRun { request: Request::CreateDvd(new("part", "x")).into() }));
    assert_eq!(lines(ask(revoke("cam"))).len(), 2, "what is derived from it goes with it");
    manager.into_target().stop().unwrap();
}

#[test]
fn owners_change_while_the_server_runs_and_are_kept() {
    let kept = kept("dvd-owners");
    let mut manager = kept.start().unwrap();
    let set = |owners: &[&str]| Request::SetVolume {
        name: "disk".into(),
        security: None,
        protected: None,
        owners: Some(owners.iter().map(|owner| (*owner).to_owned()).collect()),
    };
    assert!(!manager.target().owners().include(&principal(7)));
    assert_eq!(lines(manager.execute(set(&["10.0.0.9"]))), ["volume disk is owned by 10.0.0.9 now"]);
    assert!(manager.target().owners().include(&principal(7)));
    assert_eq!(manager.execute(set(&["alice"])).unwrap_err().code(), "derivation-invalid");
    manager.into_target().stop().unwrap();
    let mut manager = kept.start().unwrap();
    assert!(manager.target().owners().include(&principal(7)) && volume(&mut manager, "disk").owners == ["10.0.0.9"]);
    assert_eq!(lines(manager.execute(set(&[]))), ["volume disk is owned by nobody now"]);
    assert!(!manager.target().owners().include(&principal(7)) && status(&mut manager).deviations.is_empty());
    manager.into_target().stop().unwrap();
}

#[test]
fn a_refused_creation_is_told_to_those_who_watch() {
    let kept = kept("dvd-told");
    let mut manager = kept.start().unwrap();
    let by = Asker::Client { client: OWNER, address: "10.0.0.9:1".into(), as_owner: Some(principal(7)) };
    manager.handle(&by, Request::CreateDvd(new("nobody", "cam")));
    let told = events(&manager);
    assert!(
        told.len() == 1 && told[0].starts_with(&format!("client {OWNER} at 10.0.0.9:1 was refused to derive")),
        "{told:?}"
    );
    let audit = fs::read_to_string(kept.directory.join("state/audit-test.jsonl")).unwrap();
    assert!(audit.contains(r#""do":"create-dvd""#) && audit.contains(&OWNER.to_string()), "{audit}");
    manager.into_target().stop().unwrap();
}

/// A server in which OWNER owns mine, by a configuration with these besides.
fn owned(label: &str, others: &[&str]) -> Kept {
    let mine = format!("mine=ram:1M,owner=key:{OWNER}");
    kept_with(label, &[&[&*mine], others].concat())
}

fn done(manager: &mut Manager, step: Result<Step, ManageError>) -> Result<Answer, ManageError> {
    let mut step = step?;
    loop {
        match step {
            Step::Done(answer) => return Ok(answer),
            Step::Slow(slow) => match slow.run() {
                crate::manage::slow::Next::Then(then) => step = then(manager)?,
                crate::manage::slow::Next::Over(result) => return *result,
            },
        }
    }
}

fn derive_as(manager: &mut Manager, client: u8, new: NewDvd) -> Result<Answer, ManageError> {
    let begun = manager.begin_as_owner(&principal(client), Request::CreateDvd(new));
    done(manager, begun)
}

#[test]
fn owners_share_the_room_below_a_volume_whoever_they_give_parts_of_it_to() {
    let kept = owned("dvd-owners-room", &[]);
    let mut manager = kept.start().unwrap();
    let other = ClientId([8; 16]);
    lines(derive_as(&mut manager, 7, NewDvd { owners: vec![format!("key:{other}")], ..new("mine", "first") }));
    // As many as there may be, but for one: nothing looks at more than who stands on whom.
    for at in 0..1022 {
        let spec = new("first", &format!("more{at}")).spec(None).unwrap();
        manager.derivations.put(&spec);
    }
    let begun = manager.begin_as_owner(&principal(8), Request::CreateDvd(new("first", "a")));
    lines(derive_as(&mut manager, 8, new("first", "b")));
    for (client, parent) in [(7, "mine"), (8, "first")] {
        assert_eq!(derive_as(&mut manager, client, new(parent, "c")).unwrap_err().code(), "derived-too-many");
    }
    assert_eq!(done(&mut manager, begun).unwrap_err().code(), "derived-too-many", "there was room when it began");
    assert!(manager.find("a").is_none());
    let owners: Vec<String> = (0..17).map(|at| format!("10.0.0.{at}")).collect();
    manager.derivations.remove(&new("first", "more0").spec(None).unwrap());
    let error = derive_as(&mut manager, 7, NewDvd { owners, ..new("mine", "d") }).unwrap_err();
    assert!(error.to_string().contains("17 owners, 16 are allowed"), "{error}");
    manager.into_target().stop().unwrap();
}

#[test]
fn who_is_no_owner_any_more_gets_nothing_that_was_begun() {
    let kept = owned("dvd-owners-late", &[]);
    let mut manager = kept.start().unwrap();
    let begun = manager.begin_as_owner(&principal(7), Request::CreateDvd(new("mine", "cam")));
    let owners = Some(Vec::new());
    lines(manager.execute(Request::SetVolume { name: "mine".into(), security: None, protected: None, owners }));
    assert_eq!(done(&mut manager, begun).unwrap_err().code(), "not-permitted");
    assert!(manager.find("cam").is_none());
    manager.into_target().stop().unwrap();
}

#[test]
fn an_owner_does_not_take_the_name_of_a_volume_that_is_just_away() {
    let kept = owned("dvd-owners-names", &["backup=ram:1M", "open=ram:1M"]);
    let mut config = kept.config();
    config.exports.iter_mut().for_each(|export| {
        if export.name.as_str().ends_with(":open") {
            export.name = "iqn.2026-11.org.sanwire:named".parse().unwrap();
        }
    });
    let mut manager = Manager::start(config.clone(), Box::new(move || Ok(config.clone()))).unwrap();
    lines(manager.execute(remove("backup", false)));
    for name in ["backup", "open", "named"] {
        assert_eq!(derive_as(&mut manager, 7, new("mine", name)).unwrap_err().code(), "volume-exists", "{name}");
    }
    lines(derive_as(&mut manager, 7, new("mine", "cam")));
    manager.into_target().stop().unwrap();
}
