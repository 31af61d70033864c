use crate::manage::pools::tests::{add, ask, protect, start};
use crate::manage::testing::Kept;
use crate::manage::{Answer, Manager, Request};

fn rehearse(manager: &mut Manager, request: Request) -> Result<Vec<String>, String> {
    let request = Request::DryRun { request: Box::new(request) };
    assert!(!request.is_change());
    match ask(manager, request) {
        Ok(Answer::Changed(lines)) => Ok(lines),
        Ok(other) => panic!("{other:?}"),
        Err((code, _)) => Err(code),
    }
}

fn remove(name: &str) -> Request {
    Request::RemoveVolume { name: name.into(), force: false }
}

fn delete(name: &str) -> Request {
    Request::DeleteVolume { name: name.into(), force: false, snapshots: false }
}

fn resize(name: &str, size: &str) -> Request {
    Request::ResizeVolume { name: name.into(), size: size.into() }
}

#[test]
fn what_is_only_rehearsed_is_told_and_not_done() {
    let kept = Kept::new("rehearsal", &["own=ram:1M", "a=pool:,size=1M"]);
    let mut manager = start(&kept).unwrap();
    let revision = |manager: &mut Manager| match ask(manager, Request::Status) {
        Ok(Answer::Status(status)) => (status.revision, status.volumes),
        other => panic!("{other:?}"),
    };
    let before = revision(&mut manager);
    let mut told = |request| rehearse(&mut manager, request);
    let line = |line: &str| Ok(vec![line.to_owned()]);
    assert_eq!(told(remove("own")), line("volume own would not be served any more; its content would stay"));
    assert_eq!(told(delete("a")), line("the content of volume a would be deleted"));
    assert_eq!(told(resize("a", "2M")), line("volume a would have 2 MiB, and has 1 MiB"));
    assert_eq!(told(resize("a", "1M")), Ok(vec![]));
    for _ in 0..2 {
        let added = told(add("b=pool:,size=1M")).unwrap();
        assert!(added[0].starts_with("volume b would be served, if "), "{added:?}");
    }
    for (request, code) in [
        (remove("none"), "volume-unknown"),
        (delete("own"), "volume-not-in-pool"),
        (delete("none"), "volume-unknown"),
        (resize("a", "1K"), "resize-refused"),
        (resize("a", "much"), "size-invalid"),
        (add("a=ram:1M"), "volume-exists"),
        (add("b=pool:,size=1G"), "pool-full"),
        (protect("a", true), "request-invalid"),
    ] {
        assert_eq!(told(request.clone()), Err(code.into()), "{request:?}");
    }
    assert_eq!(revision(&mut manager), before);
    // And then it is done in earnest: nothing was left held.
    for request in [resize("a", "2M"), delete("a"), remove("own"), add("b=pool:,size=1M")] {
        ask(&mut manager, request).unwrap();
    }
}

#[test]
fn who_may_not_do_it_may_not_rehearse_it() {
    let kept = Kept::new("rehearsal-scope", &["own=ram:1M"]);
    let mut manager = start(&kept).unwrap();
    let request = Request::DryRun { request: Box::new(remove("own")) };
    let within = Request::InPools { pools: Vec::new(), request: Box::new(request) };
    assert_eq!(ask(&mut manager, within).map_err(|(code, _)| code), Err("not-permitted".into()));
}
