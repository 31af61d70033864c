//! Arrays as what every command of a client takes: copied, measured, looked at, attached by an entry. Each test's has a name of its own,
//! for a host uses an array once.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Client, Process, Ran, Scratch, Server, pattern, port, run, wait_until};
use crate::manage::ctl_ok;

const TIMEOUT: Duration = Duration::from_secs(120);
const MEMBER_BYTES: usize = 24 << 20;
/// Members have two labels and a MiB before the data, of which there are whole MiB.
const SIZE_BYTES: usize = 22 << 20;

/// Two servers with a disk each, and the array of both.
struct Pair {
    scratches: [Scratch; 2],
    servers: [Server; 2],
    urls: [String; 2],
}

impl Pair {
    fn new(client: &Client, name: &str) -> Pair {
        let (scratches, ports) = ([Scratch::new(), Scratch::new()], [port(), port()]);
        let server = |number: usize| {
            let scratch = &scratches[number];
            let volume = format!("disk=file:{},size={MEMBER_BYTES}", scratch.text("disk.img"));
            let control = ["--control".to_owned(), scratch.text("c.sock")];
            Server::start_on(scratch, &[&format!("hs-ip:127.0.0.1:{}", ports[number])], &[&volume], &control)
        };
        let servers = [server(0), server(1)];
        let urls = ports.map(|port| format!("hs+ip://127.0.0.1:{port}/disk"));
        let made = client.run(&["array", "create", name, "--mirror", &urls[0], &urls[1]]);
        assert_eq!(made.code, Some(0), "{made:?}");
        Pair { scratches, servers, urls }
    }

    fn reservations(&self) -> [String; 2] {
        [0, 1].map(|number| ctl_ok(&self.scratches[number].path("c.sock"), &["reservations", "disk"]))
    }

    #[track_caller]
    fn expect_free(&self) {
        for told in self.reservations() {
            assert!(!told.contains("holder"), "{told}");
        }
    }

    fn stop(mut self) {
        for server in &mut self.servers {
            assert!(server.stop().success(), "{}", server.log());
        }
    }
}

#[track_caller]
fn ok(ran: Ran) -> Ran {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran
}

#[track_caller]
fn refused(ran: &Ran, code: i32, said: &str) {
    assert!(ran.code == Some(code) && ran.stderr.contains(said), "{said}: {ran:?}");
}

#[test]
fn an_array_is_copied_measured_and_looked_at_as_a_volume_is() {
    let own = Scratch::new();
    let client = Client::new(&own, "client");
    let pair = Pair::new(&client, "copied");
    let array = format!("array:copied,member={}", pair.urls[0]);
    let (image, back, content) = (own.text("image"), own.text("back"), pattern(21, SIZE_BYTES));
    fs::write(&image, &content).expect("an image");
    ok(client.run(&["cp", &image, &array, "--verify"]));
    pair.expect_free();
    refused(&client.run(&["cp", &image, &array]), 2, "holds something");
    pair.expect_free();
    ok(client.run(&["cp", &array, &back]));
    assert!(fs::read(&back).expect("the copy") == content, "the array holds something else");
    let piped = ok(client.run(&["cp", &array, "-"]));
    assert!(piped.stdout.len() == SIZE_BYTES || piped.stderr.contains("copied 22 MiB"), "{}", piped.stderr);
    // What is only read is not changed.
    let labels = || ok(client.run(&["array", "show", &pair.urls[0], &pair.urls[1]])).stdout;
    let before = [0, 1].map(|number| fs::read(pair.scratches[number].path("disk.img")).expect("the member"));
    ok(client.run(&["bench", &array, "--time", "0.2", "--json"]));
    let looked = ok(client.run(&["info", &array]));
    assert!(
        looked.stdout.contains("made of           2 copies") && looked.stdout.contains(&pair.urls[1]),
        "{looked:?}"
    );
    let told: Value = serde_json::from_str(&ok(client.run(&["info", &array, "--json"])).stdout).expect("JSON");
    assert_eq!((&told["url"], &told["size_bytes"]), (&"array:copied".into(), &SIZE_BYTES.into()));
    assert_eq!((&told["members"][1]["standing"], &told["members"][1]["found"]), (&"in".into(), &true.into()));
    assert!(told["identity"].as_str().is_some_and(|identity| identity.starts_with("array.")), "{told}");
    let after = [0, 1].map(|number| fs::read(pair.scratches[number].path("disk.img")).expect("the member"));
    assert!(before == after, "a member was written: {}", labels());
    refused(&client.run(&["bench", &array, "--reads", "0", "--time", "0.2"]), 2, "--overwrite");
    let written = ["bench", &array, "--reads", "0", "--time", "0.2", "--overwrite", "--json"];
    let measured: Value = serde_json::from_str(&ok(client.run(&written)).stdout).expect("JSON");
    assert!(measured["writes"].as_u64() > Some(0) && measured["url"] == "array:copied", "{measured}");
    pair.expect_free();
    for command in [&["info", &array][..], &["bench", &array], &["cp", &array, &back]] {
        let with = [command, &["--password-file", "p"]].concat();
        refused(&client.run(&with), 2, "--password-file is not for arrays");
    }
    refused(&client.run(&["cp", &array, "array:copied,size=1M"]), 2, "size");
    pair.stop();
}

#[test]
fn an_array_that_another_host_has_is_not_read_beside_it_and_not_taken_from_it() {
    let (own, front) = (Scratch::new(), Scratch::new());
    let client = Client::new(&own, "client");
    let pair = Pair::new(&client, "elsewhere");
    let array = format!("array:elsewhere,member={},member={}", pair.urls[0], pair.urls[1]);
    let (volume, wire) = (format!("d={array}"), format!("hs-ip:127.0.0.1:{}", port()));
    let mut other = Server::start_on(&front, &[&wire], &[&volume], &[]);
    let before = pair.reservations();
    let (image, back) = (own.text("image"), own.text("back"));
    fs::write(&image, pattern(22, 1 << 20)).expect("an image");
    for command in [&["cp", &array, &back][..], &["bench", &array, "--time", "0.2"], &["cp", &image, &array]] {
        let ran = client.run(command);
        refused(&ran, 1, "no member of an array called elsewhere was found");
        assert!(ran.stderr.contains("reserved"), "{ran:?}");
    }
    assert_eq!(pair.reservations(), before);
    ok(client.run(&["info", &array]));
    assert!(other.stop().success(), "{}", other.log());
    ok(client.run(&["cp", &array, &back]));
    pair.stop();
}

/// Nothing keeps a second host from an export; the first one sees by the label that it has come.
#[test]
fn a_host_that_finds_another_one_in_its_unfenced_array_does_nothing_to_it_any_more() {
    let (behind, first, second) = (Scratch::new(), Scratch::new(), Scratch::new());
    let (hs, own) = (port(), port());
    let volume = format!("disk=file:{},size={MEMBER_BYTES}", behind.text("disk.img"));
    let mut server = Server::start_on(&behind, &[&format!("hs-ip:127.0.0.1:{hs}")], &[&volume], &[]);
    let (client, export) = (Client::new(&behind, "client"), behind.text("nbd"));
    let attach = ["attach", &format!("hs+ip://127.0.0.1:{hs}/disk"), "--as", "nbd", "--socket", &export];
    let mut exported = Process::spawn("attach", client.command(&attach), behind.path("attach.log"));
    wait_until("it is exported", TIMEOUT, || exported.log().contains("is attached"));
    let member = format!("nbd:{export}");
    refused(&client.run(&["array", "create", "shared", "--concat", &member]), 1, "add unfenced");
    ok(client.run(&["array", "create", "shared", "--concat", &member, "--unfenced"]));
    refused(&client.run(&["array", "scrub", "shared", &member]), 1, "add unfenced");
    let volume = format!("d=array:shared,member={member},unfenced,when-gone=error");
    let mut one = Server::start_on(&first, &[&format!("hs-ip:127.0.0.1:{own}")], &[&volume], &[]);
    assert!(one.log().contains("cannot be reserved for this host"), "{}", one.log());
    let mut other = Server::start_on(&second, &[&format!("hs-ip:127.0.0.1:{}", port())], &[&volume], &[]);
    wait_until("the first one knows", TIMEOUT, || one.log().contains("array shared: all its I/O fails from now on"));
    let (image, url) = (behind.text("image"), format!("hs+ip://127.0.0.1:{own}/d"));
    fs::write(&image, pattern(25, 1 << 20)).expect("an image");
    let late = client.run(&["cp", "--overwrite", "--wait", "2", &image, &url]);
    assert_eq!(late.code, Some(1), "{late:?}");
    assert!(!other.log().contains("all its I/O fails"), "{}", other.log());
    assert!(other.stop().success(), "{}", other.log());
    one.kill();
    exported.signal(Signal::TERM);
    assert!(exported.wait(TIMEOUT).success(), "{}", exported.log());
    assert!(server.stop().success(), "{}", server.log());
}

/// A copy that somebody ends keeps no other host from the array.
#[test]
fn a_copy_into_an_array_that_is_ended_by_a_signal_gives_its_members_back() {
    let own = Scratch::new();
    let client = Client::new(&own, "client");
    let pair = Pair::new(&client, "ended");
    let mut command = client.command(&["cp", "-", &format!("array:ended,member={}", pair.urls[0])]);
    command.stdin(Stdio::piped());
    let (mut copy, mut input, _output) = Process::spawn_with_pipes("cp", command, own.path("cp.log"));
    input.write_all(&pattern(23, 1 << 20)).expect("it reads");
    wait_until("the members are reserved", TIMEOUT, || pair.reservations().iter().all(|told| told.contains("holder")));
    fs::write(own.path("image"), pattern(24, 1 << 20)).expect("an image");
    // Another program of the same client does not take them.
    let again = client.run(&["cp", "--overwrite", &own.text("image"), &format!("array:ended,member={}", pair.urls[0])]);
    refused(&again, 1, "array:ended is in use on this host already");
    copy.signal(Signal::TERM);
    assert_eq!(copy.wait(TIMEOUT).code(), Some(143), "{}", copy.log());
    pair.expect_free();
    let scrubbed = ok(client.run(&["array", "scrub", "ended", &pair.urls[0]]));
    assert!(scrubbed.stdout.contains("are the same"), "{scrubbed:?}");
    pair.stop();
}

#[test]
fn an_array_is_attached_by_its_entry() {
    let own = Scratch::new();
    let client = Client::new(&own, "client");
    let pair = Pair::new(&client, "entered");
    let here = |arguments: &[&str]| {
        let mut command = client.command(arguments);
        command.env("XDG_RUNTIME_DIR", own.path("."));
        command
    };
    let (file, array) = (own.text("attach.toml"), format!("array:entered,member={}", pair.urls[0]));
    let save = |options: &[&str]| {
        run(here(&[&["attach", "--config", &file, "--save", "data", &array][..], options].concat()), TIMEOUT)
    };
    refused(&save(&["--exclusive"]), 2, "--exclusive is not for arrays");
    let saved = ok(save(&["--as", "nbd", "--socket", &own.text("nbd")]));
    assert!(saved.stdout.contains("sanwire-attach@data.service"), "{saved:?}");
    let checked = ok(run(here(&["attach", "--config", &file, "--check"]), TIMEOUT));
    assert!(checked.stdout.contains("data: array:entered"), "{checked:?}");
    let mut attached = Process::spawn("attach", here(&["attach", "--config", &file, "data"]), own.path("attach.log"));
    wait_until("it is attached", TIMEOUT, || attached.log().contains("array:entered is attached"));
    // Here it is used, and nowhere else on this host.
    let read = run(here(&["cp", &array, &own.text("back")]), TIMEOUT);
    refused(&read, 1, "array:entered is in use on this host already");
    attached.signal(Signal::TERM);
    assert!(attached.wait(TIMEOUT).success(), "{}", attached.log());
    pair.expect_free();
    let text = fs::read_to_string(&file).expect("the file");
    fs::write(&file, format!("{text}identity = 'naa.1'\n")).expect("it is written");
    let wrong = run(here(&["attach", "--config", &file, "data"]), TIMEOUT);
    refused(&wrong, 2, &format!("attach.toml:{}: identity is not for arrays", text.lines().count() + 1));
    pair.stop();
}
