//! The store against servers of others: qemu-nbd and nbdkit. Each test has its own, at a socket in a directory of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use sanwire_buffer::Frame;
use sanwire_store::{Completion, Outcome};
use sanwire_store_file::blocking::run;
use sanwire_testing::{is_installed, skip, this_test};

use super::*;

const SIZE_BYTES: u64 = 64 << 20;
/// Nothing here takes so long unless it never happens.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A directory that goes with the test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("sanwire-nbd-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Directory(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server of another project, which ends with the test.
struct Peer(Child);

impl Peer {
    fn start(program: &str, arguments: &[&str], socket: &Path) -> Peer {
        let _ = std::fs::remove_file(socket);
        let child = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let since = Instant::now();
        while std::os::unix::net::UnixStream::connect(socket).is_err() {
            assert!(since.elapsed() < TIMEOUT, "{program} does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        Peer(child)
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// qemu-nbd over an image of a format.
struct Qemu {
    directory: Directory,
    format: &'static str,
    peer: Peer,
}

impl Qemu {
    /// `None`, and the test is skipped, without the program.
    fn start(format: &'static str) -> Option<Qemu> {
        if !is_installed("qemu-nbd") || !is_installed("qemu-img") {
            skip(&this_test(), "it takes qemu-nbd and qemu-img (package qemu-utils)");
            return None;
        }
        let directory = Directory::new();
        let image = directory.join("image");
        let size = SIZE_BYTES.to_string();
        let made = Command::new("qemu-img").args(["create", "-q", "-f", format]).arg(&image).arg(size).status();
        assert!(made.unwrap().success());
        let peer = Qemu::serve(&directory, format);
        Some(Qemu { directory, format, peer })
    }

    fn serve(directory: &Directory, format: &str) -> Peer {
        let (image, socket) = (directory.join("image"), directory.join("socket"));
        let paths = [image.to_str().unwrap(), socket.to_str().unwrap()];
        let arguments = ["-t", "-f", format, "--shared=8", "--discard=unmap", "-x", "disk", "-k", paths[1], paths[0]];
        Peer::start("qemu-nbd", &arguments, &socket)
    }

    fn restart(&mut self) {
        self.peer = Qemu::serve(&self.directory, self.format);
    }

    fn open(&self, options: Options) -> Result<NbdStore, NbdError> {
        NbdStore::open(&Address::Path(self.directory.join("socket")), &options)
    }
}

fn options() -> Options {
    Options { export: "disk".to_owned(), ..Options::default() }
}

fn write(store: &NbdStore, offset_bytes: u64, byte: u8, length: usize) -> Completion {
    run(store, Request::Write { offset_bytes, data: vec![byte; length].into() })
}

fn read(store: &NbdStore, offset_bytes: u64, length: usize) -> Vec<u8> {
    match run(store, Request::Read { offset_bytes, buffer: Frame::from(vec![0xee; length]) }) {
        Ok(Outcome::Read(frame)) => frame.to_vec(),
        other => panic!("{other:?}"),
    }
}

fn is_hole(store: &NbdStore, offset_bytes: u64) -> bool {
    match run(store, Request::Allocation { offset_bytes, length_bytes: 65_536 }) {
        Ok(Outcome::Allocated(allocation)) => !allocation.is_mapped,
        other => panic!("{other:?}"),
    }
}

#[test]
fn everything_that_a_store_does_is_done_by_qemu_with_raw_and_qcow2() {
    for format in ["raw", "qcow2"] {
        let Some(qemu) = Qemu::start(format) else { return };
        let store = qemu.open(options()).unwrap();
        let geometry = store.geometry();
        assert_eq!((geometry.length_bytes, geometry.block_bytes), (SIZE_BYTES, 512));
        assert!(geometry.discards && !geometry.read_only);
        assert!(is_hole(&store, 1 << 20), "{format}: nothing was written");
        write(&store, 1 << 20, 7, 3 << 20).unwrap();
        run(&store, Request::Flush).unwrap();
        assert!(!is_hole(&store, 1 << 20));
        assert!(read(&store, 1 << 20, 3 << 20).iter().all(|byte| *byte == 7));
        run(&store, Request::Discard { offset_bytes: 1 << 20, length_bytes: 1 << 20 }).unwrap();
        run(&store, Request::WriteZeroes { offset_bytes: 2 << 20, length_bytes: 512 }).unwrap();
        assert!(is_hole(&store, 1 << 20), "{format}: discarded");
        assert!(read(&store, 1 << 20, (1 << 20) + 512).iter().all(|byte| *byte == 0));
        assert_eq!(read(&store, (2 << 20) + 512, 512), [7; 512]);
        let beyond = write(&store, SIZE_BYTES, 1, 512).unwrap_err();
        assert_eq!(beyond.kind, ErrorKind::OutOfRange);
    }
}

#[test]
fn a_server_that_is_killed_under_load_and_started_again_is_a_pause() {
    for format in ["raw", "qcow2"] {
        let Some(mut qemu) = Qemu::start(format) else { return };
        let store = qemu.open(options()).unwrap();
        let (is_over, rounds) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for writer in 0..4u64 {
                let (store, is_over, rounds) = (&store, &is_over, &rounds);
                scope.spawn(move || {
                    let base = writer << 22;
                    let mut round = 0;
                    while !is_over.load(Ordering::Relaxed) || round == 0 {
                        round = round % 250 + 1;
                        for block in 0..16u64 {
                            write(store, base + block * 65_536, round, 4096).unwrap();
                        }
                        if round % 8 == 0 {
                            run(store, Request::Flush).unwrap();
                        }
                        for block in 0..16u64 {
                            assert_eq!(read(store, base + block * 65_536, 4096), [round; 4096], "{format}");
                        }
                        rounds.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..4 {
                let goal = rounds.load(Ordering::Relaxed) + 20;
                let since = Instant::now();
                while rounds.load(Ordering::Relaxed) < goal && since.elapsed() < TIMEOUT {
                    std::thread::sleep(Duration::from_millis(2));
                }
                qemu.peer.kill();
                qemu.restart();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        run(&store, Request::Flush).unwrap();
    }
}

#[test]
fn a_server_that_stays_away_fails_requests_in_time_and_is_used_again_later() {
    let Some(mut qemu) = Qemu::start("raw") else { return };
    let store = qemu.open(Options { patience: Duration::from_millis(300), ..options() }).unwrap();
    write(&store, 0, 3, 4096).unwrap();
    let there = RemoteCount { is_reachable: true, times_gone: 0, reconnects: 0, requests: 0 };
    assert_eq!(store.remote(), Some(there));
    qemu.peer.kill();
    let failed = write(&store, 0, 4, 512).unwrap_err();
    assert_eq!(store.remote(), Some(RemoteCount { is_reachable: false, times_gone: 1, ..there }));
    assert_eq!(failed.kind, ErrorKind::Gone);
    assert!(failed.to_string().contains("cannot be reached"), "{failed}");
    qemu.restart();
    let since = Instant::now();
    while run(&store, Request::Flush).is_err() {
        assert!(since.elapsed() < TIMEOUT);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(read(&store, 512, 512), [3; 512]);
    assert_eq!(store.remote(), Some(RemoteCount { times_gone: 1, reconnects: 1, ..there }));
}

/// Else it would write again what it has kept, over what the volume has written that was added in its place.
#[test]
fn a_store_that_is_abandoned_while_its_server_is_away_writes_nothing_any_more() {
    let Some(mut qemu) = Qemu::start("raw") else { return };
    let store = qemu.open(Options { patience: Duration::from_hours(1), ..options() }).unwrap();
    write(&store, 0, 1, 4096).unwrap();
    qemu.peer.kill();
    let (sender, woken) = mpsc::channel();
    let queue = CompletionQueue::new(move || _ = sender.send(()));
    let Started::Pending(_) = store.start(Request::Flush, &queue) else { panic!("it waits for its server") };
    assert_eq!(store.remote().unwrap().requests, 1);
    store.abandon();
    woken.recv_timeout(TIMEOUT).unwrap();
    assert_eq!(store.remote().unwrap().requests, 0);
    let ended = queue.take();
    assert!(matches!(&ended[..], [(_, Err(error))] if error.kind == ErrorKind::Gone), "{ended:?}");
    qemu.restart();
    let again = qemu.open(options()).unwrap();
    write(&again, 0, 2, 4096).unwrap();
    assert!(matches!(write(&store, 0, 3, 4096), Err(error) if error.kind == ErrorKind::Gone));
    drop(store);
    run(&again, Request::Flush).unwrap();
    assert_eq!(read(&again, 0, 4096), [2; 4096]);
}

/// The first write takes two seconds, and says then that it is done; all others are done at once.
const FIRST_IS_SLOW: &str = r#"
if mkdir "$DIR/first" 2>/dev/null; then sleep 2; dd of="$DIR/disk" conv=notrunc oflag=seek_bytes seek=$4 status=none; touch "$DIR/done"
else dd of="$DIR/disk" conv=notrunc oflag=seek_bytes seek=$4 status=none; fi"#;

/// A server whose first write is slow.
struct Slow {
    directory: Directory,
    _peer: Peer,
}

impl Slow {
    /// `None`, and the test is skipped, without the program.
    fn start() -> Option<Slow> {
        if !is_installed("nbdkit") {
            skip(&this_test(), "it takes nbdkit");
            return None;
        }
        let directory = Directory::new();
        let socket = directory.join("socket");
        std::fs::write(directory.join("disk"), vec![0; 1 << 20]).unwrap();
        let script = |text: &str| text.replace("$DIR", directory.0.to_str().unwrap());
        let arguments = [
            "-f".to_owned(),
            "-U".to_owned(),
            socket.to_str().unwrap().to_owned(),
            "eval".to_owned(),
            "get_size=echo 1048576".to_owned(),
            "thread_model=echo parallel".to_owned(),
            script(r#"pread=dd if="$DIR/disk" iflag=count_bytes,skip_bytes skip=$4 count=$3 status=none"#),
            script(&format!("pwrite={FIRST_IS_SLOW}")),
        ];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let peer = Peer::start("nbdkit", &arguments, &socket);
        Some(Slow { directory, _peer: peer })
    }

    fn address(&self) -> Address {
        Address::Path(self.directory.join("socket"))
    }

    /// Waits until the script has made this file.
    fn wait_for(&self, name: &str) {
        let since = Instant::now();
        while !self.directory.join(name).exists() {
            assert!(since.elapsed() < TIMEOUT, "the server does not come so far: {name}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A store whose first write the server has begun, and not ended.
    fn begin(&self) -> NbdStore {
        let store = NbdStore::open(&self.address(), &Options::default()).unwrap();
        let queue = CompletionQueue::new(|| ());
        let request = Request::Write { offset_bytes: 0, data: vec![1; 4096].into() };
        let Started::Pending(_) = store.start(request, &queue) else { panic!("it is left to the server") };
        self.wait_for("first");
        store
    }

    /// Opens it once more, and tells whether what is written then stays. It has to, unless the server was halted for too long.
    fn outlive(&self, (address, options): &(Address, Options)) -> bool {
        let again = NbdStore::open(address, options).unwrap();
        write(&again, 0, 2, 4096).unwrap();
        self.wait_for("done");
        let has_stayed = read(&again, 0, 4096) == [2; 4096];
        let at = |name| std::fs::metadata(self.directory.join(name)).unwrap().modified().unwrap();
        let took = at("done").duration_since(at("first")).unwrap_or_default();
        assert!(has_stayed || took > LINGER - Duration::from_secs(1), "a write that took {took:?} was not waited for");
        has_stayed
    }
}

/// Opens a store by this address and with these options after one that is abandoned, once more where the server was halted.
fn assert_waited_for(again: impl Fn(&Slow) -> (Address, Options)) {
    assert!((0..4).any(|_| {
        let Some(slow) = Slow::start() else { return true };
        slow.begin().abandon();
        slow.outlive(&again(&slow))
    }));
}

/// Else the late one would land on what the volume has written that was added in its place.
#[test]
fn a_store_is_opened_again_when_a_slow_server_is_done_with_what_the_one_before_has_sent() {
    assert_waited_for(|slow| (slow.address(), Options::default()));
}

#[test]
fn a_late_write_is_waited_for_also_where_the_socket_is_reached_by_another_path() {
    assert_waited_for(|slow| {
        let link = slow.directory.join("link");
        std::os::unix::fs::symlink(slow.directory.join("socket"), &link).unwrap();
        (Address::Path(link), Options::default())
    });
}

#[test]
fn a_late_write_is_waited_for_also_where_the_server_gives_one_disk_by_any_name() {
    assert_waited_for(|slow| (slow.address(), Options { export: "other".to_owned(), ..Options::default() }));
}

/// As where a volume of another name is added while one that was removed has commands under way.
#[test]
fn a_store_is_opened_when_the_one_that_writes_to_the_same_export_has_ended() {
    let Some(slow) = Slow::start() else { return };
    let store = slow.begin();
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(slow.outlive(&(slow.address(), Options::default()))));
        slow.wait_for("done");
        store.abandon();
    });
}

#[test]
fn what_cannot_be_opened_says_why() {
    let Some(mut qemu) = Qemu::start("raw") else { return };
    let error = qemu.open(Options { export: "disc".to_owned(), ..options() }).unwrap_err().to_string();
    assert_eq!(error, "the NBD server has no export 'disc': it has 'disk'");
    qemu.peer.kill();
    assert!(qemu.open(options()).unwrap_err().to_string().contains("refused"));
    let nowhere = Address::Path(qemu.directory.join("nowhere"));
    assert!(NbdStore::open(&nowhere, &options()).unwrap_err().to_string().contains("No such file"));
}

#[test]
fn nbdkit_and_its_errors_are_understood() {
    if !is_installed("nbdkit") {
        return skip(&this_test(), "it takes nbdkit");
    }
    let directory = Directory::new();
    let socket = directory.join("socket");
    let place = ["-U", socket.to_str().unwrap()];
    let arguments =
        [&["-f"][..], &place, &["--filter=error", "memory", "64M", "error=ENOSPC", "error-pwrite-rate=100%"]];
    let _peer = Peer::start("nbdkit", &arguments.concat(), &socket);
    let store = NbdStore::open(&Address::Path(socket), &Options::default()).unwrap();
    assert_eq!(read(&store, 4096, 512), [0; 512]);
    let full = write(&store, 8192, 1, 512).unwrap_err();
    assert_eq!((full.kind, full.offset_bytes), (ErrorKind::Full, 8192));
    run(&store, Request::Flush).unwrap();
}

#[test]
fn a_read_only_export_and_large_blocks_are_what_they_are() {
    if !is_installed("nbdkit") {
        return skip(&this_test(), "it takes nbdkit");
    }
    let directory = Directory::new();
    let socket = directory.join("socket");
    let sizes = ["blocksize-minimum=4096", "blocksize-maximum=64K", "blocksize-error-policy=error"];
    let place = ["-f", "-r", "-U", socket.to_str().unwrap(), "--filter=blocksize-policy", "memory", "1M"];
    let _peer = Peer::start("nbdkit", &[&place[..], &sizes].concat(), &socket);
    let address = Address::Path(socket);
    let store = NbdStore::open(&address, &Options::default()).unwrap();
    assert_eq!((store.geometry().block_bytes, store.geometry().read_only), (4096, true));
    assert_eq!(read(&store, 0, 1 << 20).len(), 1 << 20, "in parts that the server takes");
    let refused = NbdStore::open(&address, &Options { block_bytes: Some(512), ..Options::default() }).unwrap_err();
    assert!(refused.to_string().contains("use block=4096"), "{refused}");
}
