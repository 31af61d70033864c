//! What is done with the copies of an array that is served, and is not done at once: it is cancelled, or comes to its end later. Each
//! test's has a name of its own, for a host uses an array once.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Client, Scratch, Server, pattern, port, wait_until};
use crate::manage::{ctl, ctl_ok};

const TIMEOUT: Duration = Duration::from_secs(120);
const MIB: usize = 1 << 20;
/// What a member of 24 MiB has room for.
const SIZE_BYTES: usize = 22 * MIB;

#[track_caller]
fn ok(client: &Client, arguments: &[&str]) -> String {
    let told = client.run(arguments);
    assert_eq!(told.code, Some(0), "{arguments:?}: {told:?}");
    told.stdout
}

fn says(server: &Server, what: &str) -> bool {
    server.log().contains(what)
}

/// Begins with a change, has it end before it is done, and expects that it has.
#[track_caller]
fn cancel(socket: &Path, arguments: &[&str]) {
    let begun = ctl_ok(socket, &[arguments, &["--no-wait", "--json"]].concat());
    let job: Value = serde_json::from_str(&begun).expect("JSON");
    let id = job["job"]["id"].as_u64().expect("a number").to_string();
    let told = ctl_ok(socket, &["cancel-job", &id]);
    assert!(told.contains("ends before it is done"), "{told}");
    let ended = ctl(socket, &["job", &id, "--wait"]);
    assert!(ended.code == Some(1) && ended.stderr.contains("it was ended before it was done"), "{ended:?}");
    let again = ctl(socket, &["cancel-job", &id]);
    assert_eq!(again.code, Some(1), "it is over: {again:?}");
}

#[test]
fn a_comparison_and_a_growth_of_a_served_array_are_cancelled_and_done_again() {
    let (first, scratch) = (Scratch::new(), Scratch::new());
    let (behind, own, far) = (port(), port(), first.path("c.sock"));
    let control = |scratch: &Scratch| ["--control".to_owned(), scratch.text("c.sock")];
    // What is compared is read of both, each quarter of a MiB by itself.
    let disk = format!("disk=file:{},size=24M,delay=read:50ms", first.text("disk.img"));
    let mut slow = Server::start_on(&first, &[&format!("hs-ip:127.0.0.1:{behind}")], &[&disk], &control(&first));
    let member = format!("hs+ip://127.0.0.1:{behind}/disk");
    let client = Client::new(&scratch, "client");
    let here = format!("file:{}", scratch.text("one.img"));
    ok(&client, &["array", "create", "cancelled", "--mirror", &format!("{here},size=24M"), &member]);
    let volume = format!("d=array:cancelled,member={here},member={member}");
    let wire = format!("hs-ip:127.0.0.1:{own}");
    let mut server = Server::start_on(&scratch, &[&wire], &[&volume], &control(&scratch));
    let (url, socket) = (format!("hs+ip://127.0.0.1:{own}/d"), scratch.path("c.sock"));
    wait_until("the copies are the same", TIMEOUT, || says(&server, "has all again"));
    let (image, content) = (scratch.text("image.raw"), pattern(31, 4 * MIB));
    fs::write(&image, &content).expect("an image");
    ok(&client, &["cp", "--overwrite", &image, &url]);
    cancel(&socket, &["scrub-volume", "d"]);
    ctl_ok(&far, &["resize-volume", "disk", "56M"]);
    let file = OpenOptions::new().write(true).open(scratch.path("one.img")).expect("the member");
    file.set_len(56 << 20).expect("it is longer");
    cancel(&socket, &["grow-array", "d"]);
    let told = ok(&client, &["info", &url]);
    assert!(told.contains("22 MiB"), "{told}");
    let grown = ctl_ok(&socket, &["grow-array", "d"]);
    assert!(grown.contains("volume d has 54 MiB now, 22 MiB before"), "{grown}");
    let scrubbed = ctl(&socket, &["scrub-volume", "d"]);
    assert!(scrubbed.stdout.contains("are the same"), "{scrubbed:?}");
    let back = scratch.path("back.raw");
    ok(&client, &["cp", &url, &back.display().to_string()]);
    assert!(fs::read(&back).expect("the copy").starts_with(&content), "the array holds something else");
    for server in [&mut server, &mut slow] {
        assert!(server.stop().success(), "{}", server.log());
    }
}

/// The last step of a growth, its labels, cannot be done, and the array does not go on without the member: so it is done when that can be
/// written again.
#[test]
fn an_array_is_longer_by_itself_when_its_growth_comes_to_an_end_later() {
    let (first, front) = (Scratch::new(), Scratch::new());
    let (behind, own, far) = (port(), port(), first.path("c.sock"));
    let wire = format!("hs-ip:127.0.0.1:{behind}");
    let control = |scratch: &Scratch| ["--control".to_owned(), scratch.text("c.sock")];
    let disk = format!("disk=file:{}", first.text("disk.img"));
    let mut one = Server::start_on(&first, &[&wire], &[&format!("{disk},size=24M")], &control(&first));
    let member = format!("hs+ip://127.0.0.1:{behind}/disk");
    let client = Client::new(&front, "client");
    ok(&client, &["array", "create", "later", "--concat", &member]);
    let (volume, url) = (format!("d=array:later,member={member}"), format!("hs+ip://127.0.0.1:{own}/d"));
    let mut server = Server::start_on(&front, &[&format!("hs-ip:127.0.0.1:{own}")], &[&volume], &control(&front));
    let (image, content) = (front.text("image.raw"), pattern(32, SIZE_BYTES));
    fs::write(&image, &content).expect("an image");
    ok(&client, &["cp", "--overwrite", &image, &url]);
    one.kill();
    // Both labels at the beginning.
    let mut hurt = Server::start_on(&first, &[&wire], &[&format!("{disk},error=write@0..32K")], &control(&first));
    let is_longer = || ctl(&far, &["resize-volume", "disk", "40M"]).code == Some(0);
    wait_until("its server is there, and the disk longer", TIMEOUT, is_longer);
    let socket = front.path("c.sock");
    let mut refused = String::new();
    wait_until("it is refused for that", TIMEOUT, || {
        refused = ctl(&socket, &["grow-array", "d"]).stderr;
        refused.contains("too few members of the array are there")
    });
    std::thread::sleep(Duration::from_secs(3));
    assert!(!says(&server, "d has 38 MiB"), "{refused}: {}", server.log());
    hurt.kill();
    one.restart();
    // The copy is flushed, and a flush waits for it.
    wait_until("it is written", TIMEOUT, || client.run(&["cp", "--overwrite", &image, &url]).code == Some(0));
    wait_until("its server says so", TIMEOUT, || says(&server, "volume d has 38 MiB now, 22 MiB before"));
    let back = front.path("back.raw");
    ok(&client, &["cp", &url, &back.display().to_string()]);
    let found = fs::read(&back).expect("the copy");
    assert!(found.len() == 38 * MIB && found.starts_with(&content), "the array holds something else");
    for server in [&mut server, &mut one] {
        assert!(server.stop().success(), "{}", server.log());
    }
}
