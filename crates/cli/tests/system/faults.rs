//! Links and servers that fail under writers: a pause, and nothing lost.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::filesystems::volume;
use crate::harness::{Attached, Filesystem, Filler, Process, Server, Wire, World, run, wait_until};

/// How long the link is away.
const CUT: Duration = Duration::from_secs(5);
/// How long after a failure writers must go on.
const RECOVERY: Duration = Duration::from_secs(60);
/// Files after which a writer is in its stride.
const STRIDE: u64 = 3;

#[test]
fn writers_survive_on_ethernet_with_mtu_1500() {
    survive("writers_survive_on_ethernet_with_mtu_1500", Wire::Ethernet, 1500);
}

#[test]
fn writers_survive_on_ethernet_with_mtu_9000() {
    survive("writers_survive_on_ethernet_with_mtu_9000", Wire::Ethernet, 9000);
}

#[test]
fn writers_survive_over_ip_with_mtu_1500() {
    survive("writers_survive_over_ip_with_mtu_1500", Wire::Ip, 1500);
}

#[test]
fn writers_survive_over_ip_with_mtu_9000() {
    survive("writers_survive_over_ip_with_mtu_9000", Wire::Ip, 9000);
}

#[test]
fn writers_survive_over_iscsi_with_mtu_1500() {
    survive("writers_survive_over_iscsi_with_mtu_1500", Wire::Iscsi, 1500);
}

#[test]
fn writers_survive_over_hdsp_with_mtu_1500() {
    survive("writers_survive_over_hdsp_with_mtu_1500", Wire::Hdsp, 1500);
}

#[test]
fn writers_survive_over_hdsp_with_mtu_9000() {
    survive("writers_survive_over_hdsp_with_mtu_9000", Wire::Hdsp, 9000);
}

#[test]
fn writers_survive_over_hdsp_by_af_xdp_with_mtu_1500() {
    survive("writers_survive_over_hdsp_by_af_xdp_with_mtu_1500", Wire::HdspXdp, 1500);
}

#[test]
fn writers_survive_over_hdsp_by_af_xdp_with_mtu_9000() {
    survive("writers_survive_over_hdsp_by_af_xdp_with_mtu_9000", Wire::HdspXdp, 9000);
}

#[test]
fn writers_survive_over_visa_with_mtu_1500() {
    survive("writers_survive_over_visa_with_mtu_1500", Wire::Visa, 1500);
}

#[test]
fn writers_survive_over_visa_with_mtu_9000() {
    survive("writers_survive_over_visa_with_mtu_9000", Wire::Visa, 9000);
}

#[test]
fn writers_survive_over_visa_by_tcp_with_mtu_1500() {
    survive("writers_survive_over_visa_by_tcp_with_mtu_1500", Wire::VisaTcp, 1500);
}

/// One writer on each file system, while first the link is cut, then frames are lost, then the server is killed.
fn survive(test: &str, wire: Wire, mtu: u32) {
    let Some(world) = World::new(test, mtu, &Filesystem::TOOLS) else { return };
    let volumes = Filesystem::ALL.map(|kind| volume(&world, kind));
    let mut server = Server::start_for(&world, wire, &volumes.each_ref().map(String::as_str));
    let attached = Filesystem::ALL.map(|kind| Attached::device(&world, &wire.url(kind.volume())));
    let mut writers = Vec::new();
    for (kind, attached) in Filesystem::ALL.iter().zip(&attached) {
        kind.make(&attached.place);
        let directory = world.scratch.path(&format!("mnt-{}", kind.volume()));
        writers.push(Writer::new(kind.open(&attached.place, &directory)));
    }
    write_through(&writers, &attached, |progress| {
        progress.wait("at first");
        world.cut_link();
        thread::sleep(CUT);
        world.restore_link();
        progress.wait("after the link was cut");
        let dropped = lose_for_a_while(&world, wire, || progress.wait("while frames are lost"));
        assert!(dropped.iter().all(|count| *count > 0), "no frame was lost: {dropped:?}");
        server.kill();
        thread::sleep(Duration::from_secs(1));
        server.restart();
        progress.wait("after the server was killed");
    });
    for attached in &attached {
        let log = attached.log();
        assert!(log.contains("a new session"), "{log}");
        // TCP itself, and a connection of HDSP or VISA, may outlive what lasts no longer.
        let is_told = matches!(wire, Wire::Ethernet | Wire::Ip);
        assert!(!is_told || log.contains("the session goes on"), "{log}");
    }
    for ((kind, attached), writer) in Filesystem::ALL.into_iter().zip(attached).zip(writers) {
        expect_all(&world, &wire.url(kind.volume()), kind, attached, writer);
    }
    assert!(server.stop().success(), "{}", server.log());
}

/// Loses frames both ways for as long as a cut takes, and longer; gives how many.
fn lose_for_a_while(world: &World, wire: Wire, wait: impl FnOnce()) -> [u64; 2] {
    let is_xdp = wire == Wire::HdspXdp;
    if is_xdp {
        world.lose_at_client(2)
    } else {
        world.lose(2)
    }
    thread::sleep(CUT);
    wait();
    if is_xdp { world.lose_nothing_at_client() } else { world.lose_nothing() }
}

/// Attaches the volume again: the file system is sound, and all that was written is there.
fn expect_all(world: &World, url: &str, kind: Filesystem, attached: Attached, writer: Writer) {
    let count = writer.written.load(Ordering::Acquire);
    writer.filler.close();
    attached.detach(world);
    let attached = Attached::device(world, url);
    kind.check(&attached.place);
    let filler = kind.open(&attached.place, &world.scratch.path("again"));
    filler.verify(count);
    filler.close();
    attached.detach(world);
}

#[test]
fn a_session_of_three_connections_goes_on_when_one_is_lost() {
    let test = "a_session_of_three_connections_goes_on_when_one_is_lost";
    let Some(world) = World::new(test, 9000, &["mkfs.ext4", "fsck.ext4", "mount", "ss"]) else { return };
    let kind = Filesystem::Ext4;
    let url = Wire::Iscsi.url(kind.volume());
    let mut server = Server::start_for(&world, Wire::Iscsi, &[&volume(&world, kind)]);
    let options = ["--connections", "3", "--recovery-level", "2"];
    let attached = Attached::device_with(&world, &url, &options);
    kind.make(&attached.place);
    let writer = Writer::new(kind.open(&attached.place, &world.scratch.path("mnt")));
    let new_sessions = |attached: &Attached| attached.log().matches("a new session").count();
    write_through(std::slice::from_ref(&writer), std::slice::from_ref(&attached), |progress| {
        progress.wait("at first");
        wait_until("all connections are there", RECOVERY, || world.iscsi_ports().len() == 3);
        let lost = world.reset_next_connection();
        wait_until("the lost connection is replaced", RECOVERY, || {
            let ports = world.iscsi_ports();
            ports.len() == 3 && !ports.contains(&lost)
        });
        progress.wait("after a connection was lost");
        assert_eq!(new_sessions(&attached), 0, "{}", attached.log());
        server.kill();
        thread::sleep(Duration::from_secs(1));
        server.restart();
        progress.wait("after the server was killed");
        wait_until("all connections are back", RECOVERY, || world.iscsi_ports().len() == 3);
    });
    assert_eq!(new_sessions(&attached), 1, "{}", attached.log());
    expect_all(&world, &url, kind, attached, writer);
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn a_volume_that_grew_while_its_server_was_away_is_larger() {
    let test = "a_volume_that_grew_while_its_server_was_away_is_larger";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let store = world.scratch.text("disk.img");
    let volume = |size_mib: u64| format!("disk=file:{store},size={size_mib}M");
    for (wire, from_mib) in [(Wire::Iscsi, 32), (Wire::Ip, 64)] {
        let mut server = Server::start_for(&world, Wire::Iscsi, &[&volume(from_mib)]);
        let attached = Attached::file(&world, &wire.url("disk"));
        let size_mib = || fs::metadata(&attached.place).expect("the file").len() >> 20;
        assert_eq!(size_mib(), from_mib);
        server.kill();
        let grown = fs::OpenOptions::new().write(true).open(&store).and_then(|file| file.set_len(from_mib << 21));
        grown.expect("a larger store");
        let mut server = Server::start_for(&world, Wire::Iscsi, &[&volume(2 * from_mib)]);
        wait_until("the file is larger", RECOVERY, || size_mib() == 2 * from_mib);
        attached.detach(&world);
        assert!(server.stop().success(), "{}", server.log());
    }
}

#[test]
fn an_attachment_that_is_told_to_wait_outlasts_a_server_that_starts_later() {
    let test = "an_attachment_that_is_told_to_wait_outlasts_a_server_that_starts_later";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let attach = |number: u8, wait: &str| {
        let (url, socket) = (Wire::Ip.url("disk"), world.scratch.text(&format!("{number}.sock")));
        let arguments = ["attach", &url, "--as", "nbd", "--socket", &socket, "--wait", wait, "--again"];
        Process::spawn("attach", world.sanwire(&arguments), world.scratch.path(&format!("attach-{number}.log")))
    };
    let mut attached = [attach(0, "forever"), attach(1, "600")];
    // Longer than a server is sought by those who are not told.
    thread::sleep(Duration::from_secs(7));
    let mut server = Server::start(&world, &["disk=ram:16M"]);
    for process in &mut attached {
        process.wait_for("is attached as\n", RECOVERY);
    }
    drop(attached);
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn an_attachment_says_when_its_volume_goes_away_and_comes_back() {
    let test = "an_attachment_says_when_its_volume_goes_away_and_comes_back";
    let Some(world) = World::new(test, 1500, &["dd"]) else { return };
    let mut server = Server::start(&world, &["disk=ram:16M"]);
    let attached = Attached::fuse(&world, &Wire::Ip.url("disk"), &["--no-device", "--wait", "15"]);
    let read = || {
        let mut dd = std::process::Command::new("dd");
        dd.args([&format!("if={}", attached.place.display()), "of=/dev/null", "bs=4096", "count=1", "iflag=direct"]);
        run(dd, RECOVERY).code
    };
    assert_eq!(read(), Some(0));
    server.signal(Signal::STOP);
    assert_eq!(read(), Some(1));
    assert_eq!(read(), Some(1));
    server.signal(Signal::CONT);
    wait_until("it can be read again", RECOVERY, || read() == Some(0));
    // A thread of its own writes the lines.
    wait_until("it is said", RECOVERY, || attached.log().contains("WARN volume disk can be used again"));
    let log = attached.log();
    let count = |text| log.matches(text).count();
    assert_eq!(
        (count("WARN volume disk cannot be used"), count("WARN volume disk can be used again")),
        (1, 1),
        "{log}"
    );
    attached.detach(&world);
    assert!(server.stop().success(), "{}", server.log());
}

/// Who writes file after file until told to stop.
struct Writer {
    filler: Filler,
    written: AtomicU64,
    is_done: AtomicBool,
}

impl Writer {
    fn new(filler: Filler) -> Writer {
        Writer { filler, written: AtomicU64::new(0), is_done: AtomicBool::new(false) }
    }

    fn write_until(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            self.filler.write(self.written.load(Ordering::Relaxed));
            self.written.fetch_add(1, Ordering::Release);
        }
        self.is_done.store(true, Ordering::Release);
    }
}

/// The writers, as the one who makes trouble sees them.
struct Progress<'a>(&'a [Writer]);

impl Progress<'_> {
    /// Waits until every writer has written a few more files.
    #[track_caller]
    fn wait(&self, when: &str) {
        let count = |writer: &Writer| writer.written.load(Ordering::Acquire);
        let before: Vec<u64> = self.0.iter().map(count).collect();
        for (writer, before) in self.0.iter().zip(before) {
            wait_until(&format!("writers go on {when}"), RECOVERY, || count(writer) >= before + STRIDE);
        }
    }
}

/// Makes trouble while the writers write. When it fails, the attachments are killed, so that no writer waits for ever.
fn write_through(writers: &[Writer], attached: &[Attached], trouble: impl FnOnce(Progress<'_>)) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in writers {
            scope.spawn(|| writer.write_until(&stop));
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            trouble(Progress(writers));
            stop.store(true, Ordering::Release);
            for writer in writers {
                wait_until("writers end", RECOVERY, || writer.is_done.load(Ordering::Acquire));
            }
        }));
        if let Err(panic) = outcome {
            stop.store(true, Ordering::Release);
            attached.iter().for_each(Attached::abandon);
            resume_unwind(panic);
        }
    });
}
