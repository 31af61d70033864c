//! Arrays over servers of different wires: members are killed one after the other, and nothing is lost. Each test's has a name of its
//! own, for a host uses an array once.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::harness::{Client, Process, Scratch, Server, can_run, pattern, port, run, wait_until};
use crate::manage::{ctl, ctl_ok};

const TIMEOUT: Duration = Duration::from_secs(120);
const MEMBER_BYTES: usize = 24 << 20;
/// Members have two labels and a MiB before the data, of which there are whole MiB.
const SIZE_BYTES: usize = 22 << 20;
const DATA_AT: usize = 1 << 20;

/// A server with a disk in a file.
fn member(scratch: &Scratch, wire: &str) -> Server {
    let volume = format!("disk=file:{},size={MEMBER_BYTES}", scratch.text("disk.img"));
    Server::start_on(scratch, &[wire], &[&volume], &[])
}

fn data(scratch: &Scratch) -> Vec<u8> {
    fs::read(scratch.path("disk.img")).expect("the member's file")[DATA_AT..DATA_AT + SIZE_BYTES].to_vec()
}

#[track_caller]
fn ok(client: &Client, arguments: &[&str]) -> String {
    let told = client.run(arguments);
    assert_eq!(told.code, Some(0), "{arguments:?}: {told:?}");
    told.stdout
}

/// Writes the whole volume, and reads it back.
fn fill(client: &Client, scratch: &Scratch, url: &str, seed: u64) -> Vec<u8> {
    let (image, content) = (scratch.text("image.raw"), pattern(seed, SIZE_BYTES));
    fs::write(&image, &content).expect("an image");
    ok(client, &["cp", "--overwrite", &image, url]);
    expect(client, scratch, url, &content);
    content
}

/// The same with this content. `disturb` is at work meanwhile, from when the first of it stands in this file of a member, at this place.
fn fill_while(
    (client, scratch, url): (&Client, &Scratch, &str),
    content: &[u8],
    (disk, at): (&Path, usize),
    disturb: impl FnOnce(),
) {
    let image = scratch.text("image.raw");
    fs::write(&image, content).expect("an image");
    // It takes twenty seconds: whoever looks at it may be held up for some of them.
    let command = client.command(&["cp", "--overwrite", "--cap", "1M", &image, url]);
    let mut copy = Process::spawn("cp", command, scratch.path("cp.log"));
    await_first(disk, at, content);
    assert!(copy.is_alive(), "it was too fast: {}", copy.log());
    disturb();
    assert!(copy.wait(TIMEOUT).success(), "{}", copy.log());
    expect(client, scratch, url, content);
}

/// Waits until the first sector of this stands in a file at this place.
#[track_caller]
pub fn await_first(disk: &Path, at: usize, content: &[u8]) {
    let disk = fs::File::open(disk).expect("the member's file");
    let (mut first, begun) = ([0_u8; 512], Instant::now());
    while first != content[..512] {
        assert!(begun.elapsed() < TIMEOUT, "nothing is written");
        std::thread::sleep(Duration::from_millis(1));
        disk.read_exact_at(&mut first, at as u64).expect("it is read");
    }
}

#[track_caller]
fn expect(client: &Client, scratch: &Scratch, url: &str, content: &[u8]) {
    let back = scratch.path("back.raw");
    let _ = fs::remove_file(&back);
    ok(client, &["cp", url, &back.display().to_string()]);
    assert!(fs::read(&back).expect("the copy") == content, "the array holds something else");
}

/// The same for the beginning of the volume.
#[track_caller]
fn expect_start(client: &Client, scratch: &Scratch, url: &str, content: &[u8]) {
    let back = scratch.path("back.raw");
    let _ = fs::remove_file(&back);
    ok(client, &["cp", url, &back.display().to_string()]);
    assert!(fs::read(&back).expect("the copy").starts_with(content), "the array holds something else");
}

fn times(server: &Server, what: &str) -> usize {
    server.log().matches(what).count()
}

#[test]
fn a_mirror_over_two_wires_outlives_each_of_its_servers_in_turn() {
    let (first, second, front) = (Scratch::new(), Scratch::new(), Scratch::new());
    let (hs, iscsi, own) = (port(), port(), port());
    let mut one = member(&first, &format!("hs-ip:127.0.0.1:{hs}"));
    let mut two = member(&second, &format!("iscsi:127.0.0.1:{iscsi}"));
    let urls =
        [format!("hs+ip://127.0.0.1:{hs}/disk"), format!("iscsi://127.0.0.1:{iscsi}/iqn.2026-11.org.sanwire:disk/0")];
    let client = Client::new(&front, "client");
    let made = ok(&client, &["array", "create", "over-wires", "--mirror", &urls[0], &urls[1]]);
    assert!(made.contains("array over-wires is made, of 22 MiB") || made.contains("22M"), "{made}");
    let again = client.run(&["array", "create", "over-wires", "--mirror", &urls[0], &urls[1]]);
    assert!(again.stderr.contains("is a member of the array over-wires already"), "{again:?}");
    let volume = format!("d=array:over-wires,member={}", urls[0]);
    let wire = format!("hs-ip:127.0.0.1:{own}");
    let mut server = Server::start_on(&front, &[&wire], &[&volume], &[]);
    let url = format!("hs+ip://127.0.0.1:{own}/d");
    wait_until("the copies are the same", TIMEOUT, || times(&server, "has all again") == 1);
    fill_while((&client, &front, &url), &pattern(1, SIZE_BYTES), (&first.path("disk.img"), DATA_AT), || one.kill());
    let is_out = format!("member 1 ({}) is out", urls[0]);
    wait_until("it is said that the first is out", TIMEOUT, || times(&server, &is_out) == 1);
    one.restart();
    wait_until("the first is back", TIMEOUT, || times(&server, "has all again") == 2);
    let content = pattern(2, SIZE_BYTES);
    fill_while((&client, &front, &url), &content, (&second.path("disk.img"), DATA_AT), || two.kill());
    let shown = ok(&client, &["array", "show", &urls[0], &urls[1]]);
    assert!(shown.contains("out: lacks what was written since") && shown.contains("cannot be opened"), "{shown}");
    two.restart();
    wait_until("the second is back", TIMEOUT, || times(&server, "has all again") == 3);
    expect(&client, &front, &url, &content);
    assert!(server.stop().success(), "{}", server.log());
    let scrubbed = ok(&client, &["array", "scrub", "over-wires", &urls[1]]);
    assert!(scrubbed.contains("are the same"), "{scrubbed}");
    for (server, scratch) in [(&mut one, &first), (&mut two, &second)] {
        assert!(server.stop().success(), "{}", server.log());
        assert!(data(scratch) == content, "a member differs");
    }
}

/// A stripe of the arrays that servers have of their own files.
const CHUNK_BYTES: usize = 64 << 10;
/// What a mirror of two such arrays has, of two files of 12 MiB each.
const NESTED_BYTES: usize = 18 << 20;

/// A server whose disk is an array in stripes over two of its files.
fn striped(client: &Client, scratch: &Scratch, name: &str, wire: &str) -> Server {
    let [one, two] = ["0.img", "1.img"].map(|file| format!("file:{}", scratch.text(file)));
    let new = |file: &str| format!("{file},size=12M");
    ok(client, &["array", "create", name, "--stripe", &new(&one), &new(&two)]);
    let shown = ok(client, &["array", "show", &one, &two]);
    assert!(shown.contains(&format!("array {name}, 20 MiB, 2 parts in stripes of 64 KiB")), "{shown}");
    let volume = format!("disk=array:{name},member={one},member={two}");
    Server::start_on(scratch, &[wire], &[&volume], &[])
}

/// What the files of such a server have of the mirror, whose data begins at the same place as that of every array.
fn data_of_stripes(scratch: &Scratch) -> Vec<u8> {
    let files = ["0.img", "1.img"].map(|name| fs::read(scratch.path(name)).expect("the member's file"));
    let chunk = |number: usize| {
        let at = DATA_AT + number / 2 * CHUNK_BYTES;
        &files[number % 2][at..at + CHUNK_BYTES]
    };
    let first = DATA_AT / CHUNK_BYTES;
    (first..first + NESTED_BYTES / CHUNK_BYTES).flat_map(chunk).copied().collect()
}

/// Stripes at the servers, and a mirror of these at the host that uses it.
#[test]
fn arrays_at_two_servers_are_the_members_of_an_array_which_outlives_one_of_them() {
    let (first, second, front) = (Scratch::new(), Scratch::new(), Scratch::new());
    let (hs, iscsi, own) = (port(), port(), port());
    let client = Client::new(&front, "client");
    let mut one = striped(&client, &first, "stripes-one", &format!("hs-ip:127.0.0.1:{hs}"));
    let mut two = striped(&client, &second, "stripes-two", &format!("iscsi:127.0.0.1:{iscsi}"));
    let urls =
        [format!("hs+ip://127.0.0.1:{hs}/disk"), format!("iscsi://127.0.0.1:{iscsi}/iqn.2026-11.org.sanwire:disk/0")];
    let made = ok(&client, &["array", "create", "of-stripes", "--mirror", &urls[0], &urls[1]]);
    assert!(made.contains("is made, of 18 MiB"), "{made}");
    let volume = format!("d=array:of-stripes,member={}", urls[0]);
    let mut server = Server::start_on(&front, &[&format!("hs-ip:127.0.0.1:{own}")], &[&volume], &[]);
    let url = format!("hs+ip://127.0.0.1:{own}/d");
    wait_until("the copies are the same", TIMEOUT, || times(&server, "has all again") == 1);
    let content = pattern(21, NESTED_BYTES);
    // The first chunk of the mirror's data is an even one, so it is in the first file, behind half of those before it.
    let at = DATA_AT + DATA_AT / 2;
    fill_while((&client, &front, &url), &content, (&first.path("0.img"), at), || one.kill());
    let is_out = format!("member 1 ({}) is out", urls[0]);
    wait_until("it is said that the first is out", TIMEOUT, || times(&server, &is_out) == 1);
    one.restart();
    wait_until("the first is back", TIMEOUT, || times(&server, "has all again") == 2);
    expect(&client, &front, &url, &content);
    assert!(server.stop().success(), "{}", server.log());
    let scrubbed = ok(&client, &["array", "scrub", "of-stripes", &urls[0], &urls[1]]);
    assert!(scrubbed.contains("are the same"), "{scrubbed}");
    for (server, scratch) in [(&mut one, &first), (&mut two, &second)] {
        assert!(server.stop().success(), "{}", server.log());
        assert!(data_of_stripes(scratch) == content, "a member differs");
    }
}

#[test]
fn one_of_two_is_not_taken_for_the_array_unless_it_is_known_to_be_or_by_force() {
    let scratch = Scratch::new();
    let client = Client::new(&scratch, "client");
    let files = ["one.img", "two.img", "three.img"].map(|name| format!("file:{},size=8M", scratch.text(name)));
    ok(&client, &["array", "create", "in-files", "--mirror", &files[0], &files[1]]);
    ok(&client, &["array", "scrub", "in-files", &files[0], &files[1]]);
    let hidden = scratch.path("hidden.img");
    fs::rename(scratch.path("two.img"), &hidden).expect("it is hidden");
    let opened = |name: &str| format!("file:{}", scratch.text(name));
    let refused = client.run(&["array", "scrub", "in-files", &opened("one.img")]);
    assert!(refused.code == Some(1) && refused.stderr.contains("only 1 of 2 members"), "{refused:?}");
    let forced = ok(&client, &["array", "force", "in-files", &opened("one.img")]);
    assert!(forced.contains("out: lacks"), "{forced}");
    // What was forced goes on by itself, and the other one is older, or has another's place.
    ok(&client, &["array", "replace", "in-files", "2", &files[2], "--member", &opened("one.img")]);
    let shown = ok(&client, &["array", "show", &opened("one.img"), &opened("three.img")]);
    assert!(!shown.contains("out") && shown.contains("2 copies"), "{shown}");
    fs::rename(&hidden, scratch.path("two.img")).expect("it is back");
    let scrubbed =
        ok(&client, &["array", "scrub", "in-files", &opened("one.img"), &opened("two.img"), &opened("three.img")]);
    assert!(scrubbed.contains("are the same") && !scrubbed.contains("two.img"), "{scrubbed}");
}

#[test]
fn what_is_no_array_is_said() {
    let scratch = Scratch::new();
    let client = Client::new(&scratch, "client");
    let file = |name: &str, size: &str| format!("file:{},size={size}", scratch.text(name));
    let refused = |arguments: &[&str], said: &str| {
        let told = client.run(arguments);
        assert!(told.code != Some(0) && told.stderr.contains(said), "{arguments:?}: {told:?}");
    };
    let (one, small) = (file("one.img", "8M"), file("small.img", "1M"));
    refused(&["array", "create", "odd", &one], "--mirror, --stripe or --concat");
    refused(&["array", "create", "odd", "--mirror", &one, &small], "too small for a member");
    refused(&["array", "create", "a/b", "--concat", &one], "no name of an array");
    refused(&["array", "create", "odd", "--mirror=2", &one], "cannot be 2 copies");
    refused(&["array", "create", "odd", "--stripe", "--chunk", "5K", &one], "5120 bytes are no chunk");
    refused(&["array", "create", "odd", "--concat", &one, &one], "");
    fs::write(scratch.path("full.img"), vec![7; 8 << 20]).expect("a file");
    refused(
        &["array", "create", "odd", "--concat", &format!("file:{}", scratch.text("full.img"))],
        "it holds something",
    );
    refused(&["array", "scrub", "odd", &one], "no member of an array called odd was found");
    assert!(Path::new(&scratch.text("one.img")).exists());
}

#[test]
fn an_array_is_attached_by_the_host_that_assembles_it_and_outlives_a_server() {
    let name = "an_array_is_attached_by_the_host_that_assembles_it_and_outlives_a_server";
    if !can_run(name, &["fusermount3"]) {
        return;
    }
    let (first, second, own) = (Scratch::new(), Scratch::new(), Scratch::new());
    let (hs, iscsi) = (port(), port());
    let mut one = member(&first, &format!("hs-ip:127.0.0.1:{hs}"));
    let mut two = member(&second, &format!("iscsi:127.0.0.1:{iscsi}"));
    let urls =
        [format!("hs+ip://127.0.0.1:{hs}/disk"), format!("iscsi://127.0.0.1:{iscsi}/iqn.2026-11.org.sanwire:disk/0")];
    let client = Client::new(&own, "client");
    ok(&client, &["array", "create", "held", "--mirror", &urls[0], &urls[1]]);
    let here = |arguments: &[&str]| {
        let mut command = client.command(arguments);
        command.env("XDG_RUNTIME_DIR", own.path("."));
        command
    };
    let array = format!("array:held,member={}", urls[1]);
    let refused = run(here(&["attach", &array, "--exclusive"]), TIMEOUT);
    assert!(refused.code == Some(2) && refused.stderr.contains("--exclusive is not for arrays"), "{refused:?}");
    let place = own.text("mounted");
    let attach = here(&["attach", &array, "--mount-point", &place, "--no-device"]);
    let mut attached = Process::spawn("attach", attach, own.path("attach.log"));
    wait_until("it is attached", TIMEOUT, || attached.log().contains("array:held is attached"));
    let file = fs::read_dir(&place).expect("it is mounted").next().expect("a file").expect("its name").path();
    assert_eq!(fs::metadata(&file).expect("the file").len(), SIZE_BYTES as u64);
    // Nobody else has it meanwhile. Attachments of this host have names of their own, so no other test calls an array so.
    let other = Client::new(&own, "other").run(&["array", "scrub", "held", &urls[0]]);
    assert!(other.code == Some(1) && other.stderr.contains("array:held is attached on this host"), "{other:?}");
    let content = pattern(5, SIZE_BYTES);
    let write = |part: std::ops::Range<usize>| {
        let opened = fs::OpenOptions::new().write(true).open(&file).expect("it is opened");
        opened.write_all_at(&content[part.clone()], part.start as u64).expect("it is written");
        opened.sync_all().expect("it is stable");
    };
    write(0..SIZE_BYTES / 2);
    // Until then the second one lacks what only the first has.
    wait_until("the second has all", TIMEOUT, || attached.log().contains("has all again"));
    one.kill();
    write(SIZE_BYTES / 2..SIZE_BYTES);
    let is_out = format!("member 1 ({}) is out", urls[0]);
    wait_until("it is said that the first is out", TIMEOUT, || attached.log().contains(&is_out));
    one.restart();
    wait_until("the first is back", TIMEOUT, || attached.log().matches("has all again").count() == 2);
    assert!(fs::read(&file).expect("it is read") == content, "the array holds something else");
    let detached = run(here(&["detach", "array:held"]), TIMEOUT);
    assert!(detached.stdout.contains("array:held is detached"), "{detached:?}");
    assert!(attached.wait(TIMEOUT).success(), "{}", attached.log());
    let scrubbed = ok(&Client::new(&own, "other"), &["array", "scrub", "held", &urls[0]]);
    assert!(scrubbed.contains("are the same"), "{scrubbed}");
    for (server, scratch) in [(&mut one, &first), (&mut two, &second)] {
        assert!(server.stop().success(), "{}", server.log());
        assert!(data(scratch) == content, "a member differs");
    }
}

/// Members over VISA beside one over HyperSCSI.
#[test]
fn a_member_is_replaced_and_copies_are_compared_while_the_array_is_served() {
    let (first, second, third, front) = (Scratch::new(), Scratch::new(), Scratch::new(), Scratch::new());
    let (ports, own) = ([port(), port(), port()], port());
    let mut one = member(&first, &format!("hs-ip:127.0.0.1:{}", ports[0]));
    let mut two = member(&second, &format!("visa:127.0.0.1:{}", ports[1]));
    let mut three = member(&third, &format!("visa:127.0.0.1:{}", ports[2]));
    let urls: Vec<String> = ["hs+ip", "visa", "visa+tcp"]
        .iter()
        .zip(ports)
        .map(|(scheme, port)| format!("{scheme}://127.0.0.1:{port}/disk"))
        .collect();
    let client = Client::new(&front, "client");
    ok(&client, &["array", "create", "scrubbed", "--mirror", &urls[0], &urls[1]]);
    let control = ["--control".to_owned(), front.text("c.sock")];
    let volumes = [format!("d=array:scrubbed,member={}", urls[0]), "plain=ram:1M".to_owned()];
    let volumes: Vec<&str> = volumes.iter().map(String::as_str).collect();
    let mut server = Server::start_on(&front, &[&format!("hs-ip:127.0.0.1:{own}")], &volumes, &control);
    let url = format!("hs+ip://127.0.0.1:{own}/d");
    let socket = front.path("c.sock");
    wait_until("the copies are the same", TIMEOUT, || times(&server, "has all again") == 1);
    let refused = ctl(&socket, &["scrub-volume", "plain"]);
    assert!(refused.stderr.contains("it is no array"), "{refused:?}");
    let refused = ctl(&socket, &["replace-member", "d", "2", &urls[2]]);
    assert!(refused.stderr.contains("member 2 is there"), "{refused:?}");
    let content = pattern(6, SIZE_BYTES);
    fill_while((&client, &front, &url), &content, (&second.path("disk.img"), DATA_AT), || two.kill());
    wait_until("the second is out", TIMEOUT, || times(&server, &format!("member 2 ({}) is out", urls[1])) == 1);
    let replaced = ctl_ok(&socket, &["replace-member", "d", "2", &urls[2]]);
    assert!(replaced.contains("is member 2 of d now"), "{replaced}");
    wait_until("the third has all", TIMEOUT, || times(&server, "has all again") == 2);
    assert!(ctl_ok(&socket, &["scrub-volume", "d"]).contains("are the same"));
    // A copy that changes by itself.
    let disk = fs::OpenOptions::new().write(true).open(third.path("disk.img")).expect("the member's file");
    disk.write_all_at(&[0x55; 4096], (DATA_AT + (9 << 20)) as u64).expect("it is written");
    let scrubbed = ctl_ok(&socket, &["scrub-volume", "d"]);
    assert!(scrubbed.contains("1 pieces of up to 256 KiB of d differed"), "{scrubbed}");
    assert!(ctl_ok(&socket, &["scrub-volume", "d"]).contains("are the same"));
    expect(&client, &front, &url, &content);
    assert!(server.stop().success(), "{}", server.log());
    for (server, scratch) in [(&mut one, &first), (&mut three, &third)] {
        assert!(server.stop().success(), "{}", server.log());
        assert!(data(scratch) == content, "a member differs");
    }
}

/// To the server the command and the attachment are one client.
#[test]
fn a_refused_command_takes_no_member_from_an_attached_array() {
    let (first, own) = (Scratch::new(), Scratch::new());
    let (hs, socket) = (port(), first.path("c.sock"));
    let volume = format!("disk=file:{},size={MEMBER_BYTES}", first.text("disk.img"));
    let control = ["--control".to_owned(), socket.display().to_string()];
    let mut one = Server::start_on(&first, &[&format!("hs-ip:127.0.0.1:{hs}")], &[&volume], &control);
    let url = format!("hs+ip://127.0.0.1:{hs}/disk");
    let client = Client::new(&own, "client");
    ok(&client, &["array", "create", "guarded", "--concat", &url]);
    let here = |arguments: &[&str]| {
        let mut command = client.command(arguments);
        command.env("XDG_RUNTIME_DIR", own.path("."));
        command
    };
    let attach = here(&["attach", &format!("array:guarded,member={url}"), "--as", "nbd", "--socket", &own.text("nbd")]);
    let mut attached = Process::spawn("attach", attach, own.path("attach.log"));
    wait_until("it is attached", TIMEOUT, || attached.log().contains("array:guarded is attached"));
    let reserved = || ctl_ok(&socket, &["reservations", "disk"]);
    let before = reserved();
    assert!(before.contains("holder"), "{before}");
    let refused = run(here(&["array", "scrub", "wrong", &url]), TIMEOUT);
    assert!(refused.stderr.contains("another program of this host with the same client key (process"), "{refused:?}");
    assert_eq!(reserved(), before);
    attached.signal(rustix::process::Signal::TERM);
    assert!(attached.wait(TIMEOUT).success(), "{}", attached.log());
    let scrubbed = ok(&client, &["array", "scrub", "guarded", &url]);
    assert!(scrubbed.contains("are the same"), "{scrubbed}");
    assert!(one.stop().success(), "{}", one.log());
}

#[test]
fn an_array_grows_with_its_last_member_and_by_others() {
    let (scratch, own) = (Scratch::new(), port());
    let client = Client::new(&scratch, "client");
    let new = |name: &str| format!("file:{},size=8M", scratch.text(name));
    let there = |name: &str| format!("file:{}", scratch.text(name));
    ok(&client, &["array", "create", "grown", "--concat", &new("one.img"), &new("two.img")]);
    let refused = client.run(&["array", "grow", "grown", &there("one.img"), &there("two.img")]);
    assert!(refused.stderr.contains("have no more room than it takes"), "{refused:?}");
    let volume = format!("d=array:grown,member={},member={}", there("one.img"), there("two.img"));
    let (wire, url) = (format!("hs-ip:127.0.0.1:{own}"), format!("hs+ip://127.0.0.1:{own}/d"));
    let (image, content) = (scratch.text("image.raw"), pattern(8, 12 << 20));
    fs::write(&image, &content).expect("an image");
    let mut server = Server::start_on(&scratch, &[&wire], &[&volume], &[]);
    ok(&client, &["cp", "--overwrite", &image, &url]);
    assert!(server.stop().success(), "{}", server.log());
    let longer = fs::OpenOptions::new().write(true).open(scratch.path("two.img")).expect("the member");
    longer.set_len(12 << 20).expect("it is longer");
    let grown =
        ok(&client, &["array", "grow", "grown", &there("one.img"), &there("two.img"), "--add", &new("three.img")]);
    assert!(grown.contains("has 22 MiB now, 12 MiB before"), "{grown}");
    let mut server = Server::start_on(&scratch, &[&wire], &[&volume], &[]);
    expect_start(&client, &scratch, &url, &content);
    let all = pattern(9, SIZE_BYTES);
    fs::write(&image, &all).expect("an image");
    ok(&client, &["cp", "--overwrite", &image, &url]);
    expect(&client, &scratch, &url, &all);
    assert!(server.stop().success(), "{}", server.log());
}

fn await_served(client: &Client, url: &str) {
    wait_until("it is served again", TIMEOUT, || client.run(&["info", url]).code == Some(0));
}

fn lengthen(scratch: &Scratch, name: &str, bytes: usize) {
    let file = fs::OpenOptions::new().write(true).open(scratch.path(name)).expect("the member");
    file.set_len(bytes as u64).expect("it is longer");
}

#[test]
fn an_array_grows_while_it_is_served_and_written() {
    let (first, front) = (Scratch::new(), Scratch::new());
    let (hs, own, far) = (port(), port(), first.path("c.sock"));
    let volume = format!("disk=file:{},size={MEMBER_BYTES}", first.text("disk.img"));
    let control = ["--control".to_owned(), first.text("c.sock")];
    let mut one = Server::start_on(&first, &[&format!("hs-ip:127.0.0.1:{hs}")], &[&volume], &control);
    let url_of_one = format!("hs+ip://127.0.0.1:{hs}/disk");
    let new = |name: &str| format!("file:{},size={MEMBER_BYTES}", front.text(name));
    let client = Client::new(&front, "client");
    ok(&client, &["array", "create", "longer", "--mirror", &url_of_one, &new("two.img")]);
    let volume = format!("d=array:longer,member={url_of_one},member=file:{}", front.text("two.img"));
    let (wire, control) = (format!("hs-ip:127.0.0.1:{own}"), ["--control".to_owned(), front.text("c.sock")]);
    let mut server = Server::start_on(&front, &[&wire], &[&volume], &control);
    let (url, socket) = (format!("hs+ip://127.0.0.1:{own}/d"), front.path("c.sock"));
    wait_until("the copies are the same", TIMEOUT, || times(&server, "has all again") == 1);
    let refused = ctl(&socket, &["grow-array", "d"]);
    assert!(refused.stderr.contains("have no more room than it takes"), "{refused:?}");
    let (image, content) = (front.path("image.raw"), pattern(11, SIZE_BYTES));
    fs::write(&image, &content).expect("an image");
    let command = client.command(&["cp", "--overwrite", &image.display().to_string(), &url]);
    let mut copy = Process::spawn("cp", command, front.path("cp.log"));
    std::thread::sleep(Duration::from_millis(50));
    ctl_ok(&far, &["resize-volume", "disk", "40M"]);
    lengthen(&front, "two.img", 40 << 20);
    let told = ctl_ok(&socket, &["grow-array", "d", "--dry-run"]);
    assert!(told.contains("d would take all that its members have room for"), "{told}");
    let grown = ctl_ok(&socket, &["grow-array", "d"]);
    assert!(grown.contains("volume d has 38 MiB now, 22 MiB before"), "{grown}");
    assert!(copy.wait(TIMEOUT).success(), "{}", copy.log());
    expect_start(&client, &front, &url, &content);
    let grown = ctl_ok(&socket, &["grow-array", "d", "--add", &new("three.img"), "--add", &new("four.img")]);
    assert!(grown.contains("volume d has 60 MiB now, 38 MiB before"), "{grown}");
    expect_start(&client, &front, &url, &content);
    let all = pattern(12, 60 << 20);
    fs::write(&image, &all).expect("an image");
    ok(&client, &["cp", "--overwrite", &image.display().to_string(), &url]);
    assert!(ctl_ok(&socket, &["scrub-volume", "d"]).contains("are the same"));
    assert!(server.stop().success(), "{}", server.log());
    // The labels name those that are new.
    server.restart();
    await_served(&client, &url);
    expect(&client, &front, &url, &all);
    assert!(server.stop().success(), "{}", server.log());
    assert!(one.stop().success(), "{}", one.log());
}

#[test]
fn a_server_that_is_killed_while_its_array_grows_has_it_as_it_was_or_as_it_was_to_be() {
    let (scratch, own) = (Scratch::new(), port());
    let client = Client::new(&scratch, "client");
    let new = |name: &str| format!("file:{},size=8M", scratch.text(name));
    ok(&client, &["array", "create", "killed", "--mirror", &new("one.img"), &new("two.img")]);
    let there = |name: &str| format!("file:{}", scratch.text(name));
    let volume = format!("d=array:killed,member={},member={}", there("one.img"), there("two.img"));
    let (wire, control) = (format!("hs-ip:127.0.0.1:{own}"), ["--control".to_owned(), scratch.text("c.sock")]);
    let mut server = Server::start_on(&scratch, &[&wire], &[&volume], &control);
    let (url, socket) = (format!("hs+ip://127.0.0.1:{own}/d"), scratch.path("c.sock"));
    let (image, content) = (scratch.text("image.raw"), pattern(13, 6 << 20));
    fs::write(&image, &content).expect("an image");
    ok(&client, &["cp", "--overwrite", &image, &url]);
    let mut length = 6 << 20;
    for (step, millis) in (1..).zip([0, 3, 8, 15, 30, 60]) {
        let longer = (8 + step * 16) << 20;
        ["one.img", "two.img"].into_iter().for_each(|name| lengthen(&scratch, name, longer));
        std::thread::scope(|scope| {
            scope.spawn(|| ctl(&socket, &["grow-array", "d"]));
            std::thread::sleep(Duration::from_millis(millis));
            server.kill();
        });
        server.restart();
        await_served(&client, &url);
        expect_start(&client, &scratch, &url, &content);
        let now = fs::metadata(scratch.path("back.raw")).expect("the copy").len() as usize;
        assert!([length, longer - (2 << 20)].contains(&now), "{now}");
        length = now;
    }
    assert!(ctl_ok(&socket, &["scrub-volume", "d"]).contains("are the same"));
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn a_host_whose_array_another_one_has_had_gets_no_member_back() {
    let (first, second, front, other) = (Scratch::new(), Scratch::new(), Scratch::new(), Scratch::new());
    let (ports, own, theirs) = ([port(), port()], port(), port());
    let mut one = member(&first, &format!("hs-ip:127.0.0.1:{}", ports[0]));
    let mut two = member(&second, &format!("iscsi:127.0.0.1:{}", ports[1]));
    let urls = [
        format!("hs+ip://127.0.0.1:{}/disk", ports[0]),
        format!("iscsi://127.0.0.1:{}/iqn.2026-11.org.sanwire:disk/0", ports[1]),
    ];
    let client = Client::new(&front, "client");
    ok(&client, &["array", "create", "taken", "--mirror", &urls[0], &urls[1]]);
    let volume = |keys: &str| format!("d=array:taken,member={}{keys},member={}{keys}", urls[0], urls[1]);
    let mut server = Server::start_on(&front, &[&format!("hs-ip:127.0.0.1:{own}")], &[&volume("")], &[]);
    wait_until("the copies are the same", TIMEOUT, || times(&server, "has all again") == 1);
    fill(&client, &front, &format!("hs+ip://127.0.0.1:{own}/d"), 11);
    // Another host takes it over, writes, and leaves it again.
    let taken = volume(r"\,takeover");
    let mut new = Server::start_on(&other, &[&format!("hs-ip:127.0.0.1:{theirs}")], &[&taken], &[]);
    let content = fill(&client, &other, &format!("hs+ip://127.0.0.1:{theirs}/d"), 12);
    assert!(new.stop().success(), "{}", new.log());
    // The one that had it before finds that out by what it asks next.
    let (url, image) = (format!("hs+ip://127.0.0.1:{own}/d"), front.text("image.raw"));
    let late = client.command(&["cp", "--overwrite", &image, &url]);
    let mut copy = Process::spawn("cp", late, front.path("late.log"));
    wait_until("it knows", TIMEOUT, || {
        server.log().contains("says that another host has used the array since it was begun to be used here")
    });
    copy.kill();
    assert!(times(&server, "is not this client's alone any more") >= 1, "{}", server.log());
    // It does not keep the members from the other one, which comes again.
    wait_until("it gives both up", TIMEOUT, || times(&server, "is not looked for any more") == 2);
    let mut new = Server::start_on(&other, &[&format!("hs-ip:127.0.0.1:{theirs}")], &[&volume("")], &[]);
    expect(&client, &other, &format!("hs+ip://127.0.0.1:{theirs}/d"), &content);
    assert!(new.stop().success(), "{}", new.log());
    let _ = server.stop();
    let scrubbed = ok(&client, &["array", "scrub", "taken", &urls[0]]);
    assert!(scrubbed.contains("are the same"), "{scrubbed}");
    for (server, scratch) in [(&mut one, &first), (&mut two, &second)] {
        assert!(server.stop().success(), "{}", server.log());
        assert!(data(scratch) == content, "what the other host has written is not there");
    }
}
