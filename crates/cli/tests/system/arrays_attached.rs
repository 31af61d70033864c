//! What is done with the copies of an array while it is attached and written: members are replaced, copies compared, and it becomes longer,
//! also where the attachment is killed meanwhile. Each test's has a name of its own, for a host uses an array once.

use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Client, Process, Ran, Scratch, Server, can_run, pattern, port, run, run_ok, wait_until};
use crate::manage::{ctl, ctl_ok};

const TIMEOUT: Duration = Duration::from_secs(120);
const MIB: usize = 1 << 20;
/// Members have two labels and a MiB before the data, of which there are whole MiB.
const MEMBER_BYTES: usize = 24 * MIB;
const SIZE_BYTES: usize = 22 * MIB;
const DATA_AT: usize = MIB;
/// Where the writer writes; behind that each test has the array for itself.
const WRITTEN_BYTES: usize = 16 * MIB;
const CHUNK_BYTES: usize = 64 << 10;

/// A host that has an array attached as a block device.
struct Host<'a> {
    client: Client<'a>,
    scratch: &'a Scratch,
    /// As it is written.
    array: String,
    attached: Option<Process>,
}

impl Host<'_> {
    /// As the host runs it, in a directory of its own.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.client.command(arguments);
        command.current_dir(self.scratch.directory());
        command
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        run(self.command(arguments), TIMEOUT)
    }

    #[track_caller]
    fn ok(&self, arguments: &[&str]) -> String {
        run_ok(self.command(arguments), TIMEOUT)
    }

    /// Attaches it; gives the block device.
    fn attach(&mut self) -> PathBuf {
        let (log, place) = (self.scratch.path("attach.log"), self.scratch.text("mounted"));
        // The attachment before had one, too.
        let _ = fs::remove_file(&log);
        let command = self.command(&["attach", &self.array, "--mount-point", &place, "--wait", "600"]);
        let mut process = Process::spawn("attach", command, log);
        process.wait_for("is attached as\n", TIMEOUT);
        let told = process.log();
        let device = told.lines().skip_while(|line| !line.ends_with("is attached as")).nth(1).expect("a device");
        self.attached = Some(process);
        device.into()
    }

    fn log(&self) -> String {
        self.attached.as_ref().expect("it is attached").log()
    }

    fn await_log(&self, text: &str, times: usize) {
        let what = format!("the attachment says '{text}' {times} times");
        wait_until(&what, TIMEOUT, || self.log().matches(text).count() >= times);
    }

    /// Its attachment dies (SIGKILL).
    fn kill(&mut self) {
        self.attached.take().expect("it is attached").kill();
    }

    fn detach(&mut self) {
        let name = self.array.split(',').next().expect("a name").to_owned();
        self.ok(&["detach", &name]);
        let mut attached = self.attached.take().expect("it is attached");
        assert!(attached.wait(TIMEOUT).success(), "{}", attached.log());
    }

    /// Where the attachment is asked by other programs.
    fn control(&self) -> PathBuf {
        let all: Value = serde_json::from_str(&self.ok(&["ls", "--json"])).expect("JSON");
        let name = self.array.split(',').next().expect("a name");
        let own = all.as_array().expect("a list").iter().find(|one| one["url"] == name).expect("it is listed");
        own["control"].as_str().expect("a socket").into()
    }
}

/// Writes to a device all the time, and knows what is there.
struct Writer {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Written>,
}

/// What is there, and what was under way when the device failed.
struct Written {
    content: Vec<u8>,
    in_doubt: Option<Range<usize>>,
}

impl Writer {
    /// `content`: what is there. No two writers write the same, if their seeds are not the same.
    fn start(device: &Path, content: Vec<u8>, seed: u64) -> Writer {
        let is_over = Arc::new(AtomicBool::new(false));
        let file = OpenOptions::new().write(true).open(device).expect("the device");
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut content = content;
            for number in 0.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let at = number * 7919 % (WRITTEN_BYTES / CHUNK_BYTES) * CHUNK_BYTES;
                let data = pattern((seed << 32) + number as u64, CHUNK_BYTES);
                if file.write_all_at(&data, at as u64).and_then(|()| file.sync_data()).is_err() {
                    return Written { content, in_doubt: Some(at..at + CHUNK_BYTES) };
                }
                content[at..at + CHUNK_BYTES].copy_from_slice(&data);
                thread::sleep(Duration::from_millis(2));
            }
            Written { content, in_doubt: None }
        });
        Writer { is_over, thread }
    }

    fn end(self) -> Written {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("the writer ends")
    }
}

/// Reads all of a device, which holds this, and gives it with what stands behind it: what an array has grown by holds what its members
/// had there. What was in doubt may be there or not.
#[track_caller]
fn expect(device: &Path, written: Written, size_bytes: usize) -> Vec<u8> {
    let (Written { mut content, in_doubt }, mut found) = (written, vec![0; size_bytes]);
    File::open(device).and_then(|file| file.read_exact_at(&mut found, 0)).expect("the device is read");
    content.extend_from_slice(&found[content.len()..]);
    if let Some(range) = in_doubt {
        content[range.clone()].copy_from_slice(&found[range]);
    }
    let other = found.iter().zip(&content).position(|(found, content)| found != content);
    assert_eq!(other, None, "the array holds something else from there on: {:?}", other.map(|at| &found[at..][..8]));
    content
}

fn size_of(device: &Path) -> usize {
    let mut ask = Command::new("blockdev");
    ask.arg("--getsize64").arg(device);
    run_ok(ask, TIMEOUT).trim().parse().expect("a size")
}

#[track_caller]
fn await_size(device: &Path, size_bytes: usize) {
    wait_until("the block device has grown", TIMEOUT, || size_of(device) == size_bytes);
}

fn lengthen(scratch: &Scratch, name: &str, bytes: usize) {
    let file = OpenOptions::new().write(true).open(scratch.path(name)).expect("the member");
    file.set_len(bytes as u64).expect("it is longer");
}

/// A server with a disk in a file, and its URL.
fn member(scratch: &Scratch) -> (Server, String) {
    let port = port();
    let volume = format!("disk=file:{},size={MEMBER_BYTES}", scratch.text("disk.img"));
    let control = ["--control".to_owned(), scratch.text("c.sock")];
    let server = Server::start_on(scratch, &[&format!("hs-ip:127.0.0.1:{port}")], &[&volume], &control);
    (server, format!("hs+ip://127.0.0.1:{port}/disk"))
}

#[test]
fn the_members_of_an_attached_array_are_replaced_and_it_grows_while_it_is_written() {
    let test = "the_members_of_an_attached_array_are_replaced_and_it_grows_while_it_is_written";
    if !can_run(test, &["fusermount3"]) {
        return;
    }
    let (first, second, own) = (Scratch::new(), Scratch::new(), Scratch::new());
    let ((mut one, url), (mut two, other)) = (member(&first), member(&second));
    let array = format!("array:worked-on,member={url}");
    let mut host = Host { client: Client::new(&own, "client"), scratch: &own, array, attached: None };
    host.ok(&["array", "create", "worked-on", "--mirror=2", &url, &other]);
    let lacking = host.run(&["array", "scrub", "worked-on"]);
    assert!(lacking.code == Some(2) && lacking.stderr.contains("is not attached on this host"), "{lacking:?}");
    let device = host.attach();
    host.await_log("has all again", 1);
    let writer = Writer::start(&device, vec![0; SIZE_BYTES], 1);
    assert!(host.ok(&["array", "scrub", "worked-on"]).contains("all copies of worked-on that are there are the same"));
    let named = host.run(&["array", "scrub", "worked-on", &url]);
    assert!(named.code == Some(1) && named.stderr.contains("leave its members"), "{named:?}");
    for (arguments, said) in [
        (&["replace", "worked-on", "2", "file:three.img,size=24M"][..], "member 2 is there"),
        (&["grow", "worked-on"][..], "have no more room than it takes"),
        (&["force", "worked-on", &url][..], "detach it"),
    ] {
        let refused = host.run(&[&["array"][..], arguments].concat());
        assert!(refused.code == Some(1) && refused.stderr.contains(said), "{said}: {refused:?}");
    }
    two.kill();
    host.await_log(&format!("member 2 ({other}) is out"), 1);
    let replaced = host.ok(&["array", "replace", "worked-on", "2", "file:three.img,size=24M"]);
    // The path is that of who has written it, not of the attachment.
    let three = own.text("three.img");
    assert!(replaced.contains(&format!("file:{three}")) && Path::new(&three).exists(), "{replaced}");
    host.await_log("has all again", 2);
    assert!(host.ok(&["array", "scrub", "worked-on"]).contains("are the same"));
    // A copy that changes by itself, where nobody writes.
    let disk = OpenOptions::new().write(true).open(&three).expect("the member's file");
    disk.write_all_at(&[0x55; 4096], (DATA_AT + WRITTEN_BYTES + MIB) as u64).expect("it is written");
    let scrubbed = host.ok(&["array", "scrub", "worked-on"]);
    assert!(scrubbed.contains("1 pieces of up to 256 KiB of worked-on differed"), "{scrubbed}");
    ctl_ok(&first.path("c.sock"), &["resize-volume", "disk", "40M"]);
    lengthen(&own, "three.img", 40 * MIB);
    let grown = host.ok(&["array", "grow", "worked-on"]);
    assert!(grown.contains("array worked-on has 38 MiB now, 22 MiB before"), "{grown}");
    await_size(&device, 38 * MIB);
    let more = ["--add", "file:four.img,size=24M", "--add", "file:five.img,size=24M"];
    let grown = host.ok(&[&["array", "grow", "worked-on"][..], &more].concat());
    assert!(grown.contains("array worked-on has 60 MiB now, 38 MiB before"), "{grown}");
    await_size(&device, 60 * MIB);
    let mut written = writer.end();
    assert_eq!(written.in_doubt, None, "the device has failed: {}", host.log());
    // What is new is used, too, over the border of two parts.
    let new = pattern(9, 38 * MIB);
    let file = OpenOptions::new().write(true).open(&device).expect("the device");
    file.write_all_at(&new, SIZE_BYTES as u64).and_then(|()| file.sync_all()).expect("it is written");
    drop(file);
    written.content.extend_from_slice(&new);
    let content = expect(&device, written, 60 * MIB);
    end(host, &url, "worked-on", &content);
    assert!(one.stop().success(), "{}", one.log());
}

/// Detaches an array, whose members all are the same then and hold this.
fn end(mut host: Host<'_>, url: &str, name: &str, content: &[u8]) {
    let control = host.control();
    let jobs = ctl_ok(&control, &["jobs"]);
    assert!(jobs.contains("scrub-volume"), "{jobs}");
    let refused = ctl(&control, &["remove-volume", name]);
    assert!(refused.stderr.contains("an attached array is asked for"), "{refused:?}");
    host.detach();
    assert!(!control.exists(), "its socket is there still");
    let scrubbed = host.ok(&["array", "scrub", name, url]);
    assert!(scrubbed.contains("are the same"), "{scrubbed}");
    host.ok(&["cp", &format!("array:{name},member={url}"), "back.raw"]);
    assert!(fs::read(host.scratch.path("back.raw")).expect("the copy") == content, "the array holds something else");
}

#[test]
fn an_attachment_that_is_killed_while_its_array_is_worked_on_loses_nothing() {
    let test = "an_attachment_that_is_killed_while_its_array_is_worked_on_loses_nothing";
    if !can_run(test, &["fusermount3"]) {
        return;
    }
    let (first, second, own) = (Scratch::new(), Scratch::new(), Scratch::new());
    let ((mut one, url), (mut two, other)) = (member(&first), member(&second));
    let array = format!("array:cut-off,member={url}");
    let mut host = Host { client: Client::new(&own, "client"), scratch: &own, array, attached: None };
    host.ok(&["array", "create", "cut-off", "--mirror=2", &url, &other]);
    let device = host.attach();
    host.await_log("has all again", 1);
    let writer = Writer::start(&device, vec![0; SIZE_BYTES], 1);
    two.kill();
    host.await_log(&format!("member 2 ({other}) is out"), 1);
    // The new member has its label, and not all that it is to have.
    host.ok(&["array", "replace", "cut-off", "2", "file:three.img,size=24M"]);
    host.kill();
    let lacking = host.run(&["array", "scrub", "cut-off"]);
    assert!(lacking.code == Some(2) && lacking.stderr.contains("is not attached on this host"), "{lacking:?}");
    let written = writer.end();
    let device = host.attach();
    host.await_log("has all again", 1);
    let mut content = expect(&device, written, SIZE_BYTES);
    // Two more at the end, which become longer.
    host.ok(&["array", "grow", "cut-off", "--add", "file:four.img,size=8M", "--add", "file:five.img,size=8M"]);
    let (mut device, mut size_bytes) = (device, SIZE_BYTES + 6 * MIB);
    for (step, millis) in (1..).zip([0, 5, 20, 60]) {
        await_size(&device, size_bytes);
        let writer = Writer::start(&device, content, 1 + step as u64);
        let member_bytes = (8 + step * 16) * MIB;
        ["four.img", "five.img"].into_iter().for_each(|name| lengthen(&own, name, member_bytes));
        let grow = host.command(&["array", "grow", "cut-off"]);
        let mut growing = Process::spawn("grow", grow, own.path("grow.log"));
        thread::sleep(Duration::from_millis(millis));
        host.kill();
        growing.wait(TIMEOUT);
        let written = writer.end();
        device = host.attach();
        let longer = SIZE_BYTES + member_bytes - 2 * MIB;
        let now = size_of(&device);
        assert!([size_bytes, longer].contains(&now), "it has {now} bytes, neither {size_bytes} nor {longer}");
        content = expect(&device, written, now);
        size_bytes = now;
        assert!(host.ok(&["array", "scrub", "cut-off"]).contains("all copies of cut-off that are there are the same"));
    }
    end(host, &url, "cut-off", &content);
    assert!(one.stop().success(), "{}", one.log());
}
