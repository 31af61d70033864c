use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::*;
use crate::latch::Latch;
use crate::test_volume::{Gate, RamVolume, TestDirectory, have};
use sanwire_nbd::wire::*;

/// Nothing here takes so long unless it never happens.
const TIMEOUT: Duration = Duration::from_secs(20);

fn serve(volume: RamVolume, directory: &TestDirectory) -> NbdServer {
    let address = NbdAddress::Unix(directory.path().join("nbd"));
    serve_nbd(volume.start(), false, &address, Latch::new().unwrap(), NbdClients::default()).unwrap()
}

/// A client of few words.
struct Client {
    stream: UnixStream,
    structured: bool,
}

impl Client {
    fn connect(server: &NbdServer, structured: bool) -> Client {
        let NbdAddress::Unix(path) = server.address() else { panic!("a unix socket") };
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut client = Client { stream, structured };
        client.read(18);
        client.stream.write_all(&3u32.to_be_bytes()).unwrap();
        if structured {
            client.option(OPT_STRUCTURED_REPLY, &[]);
            assert_eq!(be32(&client.read(20), 12), REP_ACK);
        }
        client.option(OPT_EXPORT_NAME, b"disk");
        client.read(10);
        client
    }

    fn option(&mut self, option: u32, data: &[u8]) {
        let head = [&MAGIC_OPTION.to_be_bytes()[..], &option.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data];
        self.stream.write_all(&head.concat()).unwrap();
    }

    fn request(&mut self, kind: u16, flags: u16, cookie: u64, offset_bytes: u64, length_bytes: u32) {
        let request = RawRequest { flags, kind, cookie, offset_bytes, length_bytes };
        self.stream.write_all(&request.to_bytes()).unwrap();
    }

    fn read(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// The error of a simple reply, and whose it is.
    fn simple_reply(&mut self) -> (u64, u32) {
        let reply = self.read(16);
        assert_eq!(be32(&reply, 0), 0x6744_6698);
        (be64(&reply, 8), be32(&reply, 4))
    }

    /// One chunk: flags, kind, cookie, content.
    fn chunk(&mut self) -> (u16, u16, u64, Vec<u8>) {
        let head = self.read(20);
        assert_eq!(be32(&head, 0), 0x668e_33ef);
        let content = self.read(be32(&head, 16) as usize);
        (be16(&head, 4), be16(&head, 6), be64(&head, 8), content)
    }

    fn write(&mut self, offset_bytes: u64, data: &[u8]) -> u32 {
        self.request(CMD_WRITE, 0, 1, offset_bytes, data.len() as u32);
        self.stream.write_all(data).unwrap();
        self.simple_reply().1
    }

    /// A read in chunks, or the error.
    fn read_range(&mut self, offset_bytes: u64, length: u32, flags: u16) -> Result<Vec<u8>, u32> {
        self.request(CMD_READ, flags, 9, offset_bytes, length);
        if !self.structured {
            let (_, error) = self.simple_reply();
            return if error == 0 { Ok(self.read(length as usize)) } else { Err(error) };
        }
        let mut data = vec![0; length as usize];
        let mut chunks = 0;
        loop {
            let (chunk_flags, kind, cookie, content) = self.chunk();
            chunks += 1;
            assert_eq!(cookie, 9);
            match kind {
                0 => {}
                1 => {
                    let at = (be64(&content, 0) - offset_bytes) as usize;
                    data[at..at + content.len() - 8].copy_from_slice(&content[8..]);
                }
                _ => return Err(be32(&content, 0)),
            }
            if chunk_flags & 1 != 0 {
                assert!(flags & CMD_FLAG_DF == 0 || chunks == 1);
                return Ok(data);
            }
        }
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn long_and_odd_transfers_pass_through_a_small_region() {
    let directory = TestDirectory::new("nbd-long");
    let volume = RamVolume { size_bytes: 40 << 20, region_bytes: 4 << 20, ..RamVolume::default() };
    let server = serve(volume, &directory);
    let data = pattern(32 << 20);
    for structured in [true, false] {
        let mut client = Client::connect(&server, structured);
        assert_eq!(client.write(0, &data), 0);
        assert_eq!(client.read_range(0, 32 << 20, 0).unwrap(), data);
        assert_eq!(client.read_range(4097, 3 << 20, 0).unwrap(), data[4097..][..3 << 20]);
        assert_eq!(client.write(1_000_001, b"in the middle"), 0);
        assert_eq!(client.read_range(1_000_000, 15, 0).unwrap()[1..14], *b"in the middle");
        assert_eq!(client.read_range(5, 0, 0).unwrap(), [0u8; 0]);
    }
    let mut client = Client::connect(&server, true);
    assert_eq!(client.read_range(2 << 20, 8 << 20, CMD_FLAG_DF).unwrap(), data[2 << 20..10 << 20]);
    server.stop().unwrap();
}

#[test]
fn many_requests_are_in_flight_and_each_gets_its_own_answer() {
    let directory = TestDirectory::new("nbd-many");
    let server = serve(RamVolume::default(), &directory);
    let mut client = Client::connect(&server, false);
    let data = pattern(1 << 20);
    assert_eq!(client.write(0, &data), 0);
    let mut sender = Client { stream: client.stream.try_clone().unwrap(), structured: false };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for cookie in 0..5000u64 {
                sender.request(CMD_READ, 0, cookie, cookie % 250 * 4096, 4096);
            }
        });
        let mut seen = HashMap::new();
        for _ in 0..5000 {
            let (cookie, error) = client.simple_reply();
            assert_eq!(error, 0);
            assert_eq!(client.read(4096), data[(cookie % 250 * 4096) as usize..][..4096]);
            *seen.entry(cookie).or_insert(0) += 1;
        }
        assert!(seen.len() == 5000 && seen.values().all(|times| *times == 1));
    });
    server.stop().unwrap();
}

#[test]
fn errors_are_answers_and_the_connection_goes_on() {
    let directory = TestDirectory::new("nbd-errors");
    let volume = RamVolume { bad_byte: Some(5 << 20), read_only: true, ..RamVolume::default() };
    let server = serve(volume, &directory);
    for structured in [true, false] {
        let mut client = Client::connect(&server, structured);
        assert_eq!(client.read_range(4 << 20, 3 << 20, 0), Err(Errno::Io as u32));
        assert_eq!(client.read_range(5 << 20, 512, 0), Err(Errno::Io as u32));
        assert_eq!(client.write(0, &[1; 100_000]), Errno::Permission as u32);
        assert_eq!(client.read_range(1 << 40, 512, 0), Err(Errno::Invalid as u32));
        for (kind, error) in [(CMD_FLUSH, 0), (CMD_CACHE, 0), (77, Errno::Invalid as u32)] {
            client.request(kind, 0, 3, 0, 0);
            assert_eq!(client.simple_reply(), (3, error));
        }
        assert_eq!(client.read_range(0, 4096, 0).unwrap(), [0; 4096]);
    }
    server.stop().unwrap();
}

/// As fsync of the device over it tells.
#[test]
fn that_writes_were_lost_is_an_error_of_the_next_flush_and_of_no_other() {
    let directory = TestDirectory::new("nbd-lost");
    for (kind, flags, length_bytes) in [(CMD_FLUSH, 0, 0), (CMD_WRITE, CMD_FLAG_FUA, 4096)] {
        let server = serve(RamVolume { has_lost_writes: true, ..RamVolume::default() }, &directory);
        let mut client = Client::connect(&server, false);
        assert_eq!(client.write(0, &[1; 4096]), 0);
        for error in [Errno::Io as u32, 0, 0] {
            client.request(kind, flags, 3, 0, length_bytes);
            client.stream.write_all(&vec![2; length_bytes as usize]).unwrap();
            assert_eq!(client.simple_reply(), (3, error), "{kind}");
        }
        server.stop().unwrap();
    }
}

#[test]
fn garbage_ends_its_own_connection_only() {
    let directory = TestDirectory::new("nbd-garbage");
    let server = serve(RamVolume::default(), &directory);
    let mut good = Client::connect(&server, true);
    let mut bad = Client::connect(&server, true);
    bad.stream.write_all(&[0x5a; 28]).unwrap();
    assert_eq!(bad.stream.read(&mut [0; 16]).unwrap(), 0, "closed");
    let mut oversize = Client::connect(&server, true);
    oversize.request(CMD_WRITE, 0, 1, 0, u32::MAX);
    assert_eq!(oversize.stream.read(&mut [0; 16]).unwrap(), 0, "closed");
    let mut cut = Client::connect(&server, true);
    cut.request(CMD_WRITE, 0, 1, 0, 4096);
    drop(cut);
    assert_eq!(good.read_range(0, 512, 0).unwrap(), [0; 512]);
    good.request(CMD_DISCONNECT, 0, 0, 0, 0);
    assert_eq!(good.stream.read(&mut [0; 16]).unwrap(), 0, "a farewell");
    server.stop().unwrap();
}

#[test]
fn nobody_waits_for_clients_that_are_silent() {
    let directory = TestDirectory::new("nbd-silent");
    let server = serve(RamVolume { region_bytes: 64 << 20, ..RamVolume::default() }, &directory);
    let NbdAddress::Unix(path) = server.address() else { panic!("a unix socket") };
    // Before the greeting, in the middle of it, of a request, and of the data of a long one.
    let connected = UnixStream::connect(path).unwrap();
    let mut greeted = UnixStream::connect(path).unwrap();
    greeted.write_all(&[0, 0]).unwrap();
    let mut begun = Client::connect(&server, true);
    begun.stream.write_all(&[0x25, 0x60, 0x95]).unwrap();
    let mut writing: Vec<Client> = (0..4).map(|_| Client::connect(&server, true)).collect();
    writing.iter_mut().for_each(|client| client.request(CMD_WRITE, 0, 1, 0, 16 << 20));
    // And such as ask for much, and take nothing of it: more than the memory of the volume, if all of it were held.
    let mut reading: Vec<Client> = [true, false].map(|structured| Client::connect(&server, structured)).into();
    for client in &mut reading {
        (0..60).for_each(|cookie| client.request(CMD_READ, 0, cookie, 0, 1 << 20));
        client.read(1);
    }
    let mut long = Client::connect(&server, true);
    long.request(CMD_READ, 0, 1, 0, 16 << 20);
    long.read(1);
    let mut client = Client::connect(&server, true);
    // Those who are silent have half a minute.
    client.stream.set_read_timeout(Some(Duration::from_secs(25))).unwrap();
    let data = pattern(2 << 20);
    for _ in 0..4 {
        assert_eq!(client.write(0, &data), 0);
        assert_eq!(client.read_range(0, 2 << 20, 0).unwrap(), data);
    }
    // Who goes on is served as well.
    let mut rest = vec![0; 60 * ((1 << 20) + 16) - 1];
    reading[1].stream.read_exact(&mut rest).unwrap();
    drop((connected, greeted, begun, writing, reading, long));
    server.stop().unwrap();
}

#[test]
fn stopping_answers_what_is_in_flight_and_removes_the_socket() {
    let directory = TestDirectory::new("nbd-stop");
    let ((begun, has_begun), (go, go_on)) = (mpsc::channel(), mpsc::channel());
    let volume = RamVolume { gate: Some(Gate { begun, go_on }), ..RamVolume::default() };
    let (address, stop) = (NbdAddress::Unix(directory.path().join("nbd")), Latch::new().unwrap());
    let clients = NbdClients::default();
    let server = serve_nbd(volume.start(), false, &address, stop.clone(), clients.clone()).unwrap();
    assert_eq!(clients.count(), 0);
    let mut client = Client::connect(&server, false);
    assert_eq!(clients.count(), 1);
    client.request(CMD_READ, 0, 5, 0, 4096);
    has_begun.recv_timeout(TIMEOUT).expect("the read is in flight");
    stop.set();
    drop(go);
    server.stop().unwrap();
    assert_eq!((client.simple_reply(), clients.count()), ((5, 0), 0));
    assert!(!directory.path().join("nbd").exists());
    let second = serve(RamVolume::default(), &directory);
    second.stop().unwrap();
}

#[test]
fn an_address_in_use_is_refused_and_a_dead_socket_is_replaced() {
    let directory = TestDirectory::new("nbd-address");
    let server = serve(RamVolume::default(), &directory);
    let again =
        serve_nbd(RamVolume::default().start(), false, server.address(), Latch::new().unwrap(), NbdClients::default());
    assert!(matches!(again, Err(NbdError::Listen { .. })));
    server.stop().unwrap();
    drop(std::os::unix::net::UnixListener::bind(directory.path().join("nbd")).unwrap());
    serve(RamVolume::default(), &directory).stop().unwrap();
    let any = NbdAddress::Tcp("127.0.0.1:0".parse().unwrap());
    let tcp =
        serve_nbd(RamVolume::default().start(), false, &any, Latch::new().unwrap(), NbdClients::default()).unwrap();
    assert!(matches!(tcp.address(), NbdAddress::Tcp(address) if address.port() != 0));
    tcp.stop().unwrap();
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    said
}

#[test]
fn qemu_copies_a_disk_in_and_out() {
    if !have("qemu-img") || !have("qemu-io") {
        return;
    }
    let directory = TestDirectory::new("nbd-qemu");
    let server = serve(RamVolume { region_bytes: 8 << 20, ..RamVolume::default() }, &directory);
    let url = format!("nbd+unix:///disk?socket={}", directory.path().join("nbd").display());
    let image: PathBuf = directory.path().join("image");
    let mut content = pattern(16 << 20);
    content[3 << 20..6 << 20].fill(0);
    std::fs::write(&image, &content).unwrap();
    let image = image.to_str().unwrap();
    run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", "-W", "-m", "8", image, &url]);
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", image, &url]);
    // 512-byte accesses to 4096-byte blocks: qemu honours the advertised block, so it does the reading itself.
    let script = ["-c", "write -P 0x5a 512 1024", "-c", "read -P 0x5a 512 1024", "-c", "write -z 8192 12288"];
    let checks = ["-c", "read -P 0 8192 12288", "-c", "discard 1M 1M", "-c", "aio_write -P 7 2M 4k", "-c", "flush"];
    let said = run("qemu-io", &[&["-f", "raw", &url][..], &script, &checks].concat());
    assert!(!said.contains("verification failed"), "{said}");
    if have("nbdinfo") {
        assert!(run("nbdinfo", &[&url]).contains("16777216"));
    }
    server.stop().unwrap();
}

#[test]
fn foreign_clients_see_what_is_allocated() {
    let directory = TestDirectory::new("nbd-map");
    let server = serve(RamVolume::default(), &directory);
    let mut client = Client::connect(&server, false);
    assert_eq!(client.write(4 << 20, &pattern(1 << 20)), 0);
    assert_eq!(client.write(12 << 20, &pattern(4096)), 0);
    drop(client);
    let url = format!("nbd+unix:///disk?socket={}", directory.path().join("nbd").display());
    let (data, hole) = ((1, 0), (0, 1));
    let expected = [
        (0, 4 << 20, hole),
        (4 << 20, 1 << 20, data),
        (5 << 20, 7 << 20, hole),
        (12 << 20, 4096, data),
        ((12 << 20) + 4096, (4 << 20) - 4096, hole),
    ];
    if have("nbdinfo") {
        let map: serde_json::Value = serde_json::from_str(&run("nbdinfo", &["--map", "--json", &url])).unwrap();
        let number = |run: &serde_json::Value, key: &str| run[key].as_u64().unwrap();
        let of_run = |run| (number(run, "offset"), number(run, "length"), number(run, "type"));
        let found: Vec<_> = map.as_array().unwrap().iter().map(of_run).collect();
        let wanted: Vec<_> =
            expected.iter().map(|(at, length, kind)| (*at, *length, if *kind == data { 0 } else { 3 })).collect();
        assert_eq!(found, wanted);
    }
    if have("qemu-img") {
        let map = run("qemu-img", &["map", "--output=json", "-f", "raw", &url]);
        let map: serde_json::Value = serde_json::from_str(&map).unwrap();
        let of_run = |run: &serde_json::Value| {
            let flags = (u64::from(run["data"].as_bool().unwrap()), u64::from(run["zero"].as_bool().unwrap()));
            (run["start"].as_u64().unwrap(), run["length"].as_u64().unwrap(), flags)
        };
        let found: Vec<_> = map.as_array().unwrap().iter().map(of_run).collect();
        assert_eq!(found, expected);
    }
    server.stop().unwrap();
}

#[test]
fn block_status_is_told_in_runs_within_the_range_and_only_to_who_has_chosen_it() {
    let directory = TestDirectory::new("nbd-status");
    let server = serve(RamVolume::default(), &directory);
    let mut client = Client::connect(&server, true);
    client.request(CMD_BLOCK_STATUS, 0, 4, 0, 4096);
    let (flags, kind, cookie, content) = client.chunk();
    assert_eq!((flags, kind, cookie, be32(&content, 0)), (1, 0x8001, 4, Errno::Invalid as u32));

    let NbdAddress::Unix(path) = server.address() else { panic!("a unix socket") };
    let mut client = Client { stream: UnixStream::connect(path).unwrap(), structured: true };
    client.read(18);
    client.stream.write_all(&3u32.to_be_bytes()).unwrap();
    client.option(OPT_STRUCTURED_REPLY, &[]);
    client.read(20);
    client.option(OPT_SET_META_CONTEXT, b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation");
    client.read(20 + 4 + 15 + 20);
    client.option(OPT_EXPORT_NAME, b"disk");
    client.read(10);
    let mut writer = Client::connect(&server, false);
    assert_eq!(writer.write(8192, &pattern(8192)), 0);
    let mut status = |flags, offset_bytes, length| {
        client.request(CMD_BLOCK_STATUS, flags, 5, offset_bytes, length);
        let (chunk_flags, kind, cookie, content) = client.chunk();
        assert_eq!((chunk_flags, kind, cookie, be32(&content, 0)), (1, 5, 5, BASE_ALLOCATION_ID));
        content[4..].chunks(8).map(|run| (be32(run, 0), be32(run, 4))).collect::<Vec<_>>()
    };
    assert_eq!(status(0, 0, 1 << 20), [(8192, 3), (8192, 0)], "as far as one question went");
    assert_eq!(status(CMD_FLAG_REQ_ONE, 0, 1 << 20), [(8192, 3)]);
    assert_eq!(status(0, 512, 7680 + 100), [(7680, 3), (100, 0)], "not at blocks");
    assert_eq!(status(0, (16 << 20) - 1, 1), [(1, 3)], "the end");
    server.stop().unwrap();
}

/// `cargo test --release -p sanwire-attach -- --ignored --nocapture nbd_random_reads`
#[test]
#[ignore = "a measurement"]
fn nbd_random_reads() {
    if !have("fio") {
        return;
    }
    let directory = TestDirectory::new("nbd-fio");
    let server = serve(RamVolume { size_bytes: 256 << 20, ..RamVolume::default() }, &directory);
    for depth in [1, 32] {
        let mut client = Client::connect(&server, true);
        let mut sender = Client { stream: client.stream.try_clone().unwrap(), structured: true };
        let deadline = Instant::now() + Duration::from_secs(3);
        for cookie in 0..depth {
            sender.request(CMD_READ, 0, cookie, cookie * 4096, 4096);
        }
        let (mut answers, mut at) = (0u64, 12_345u64);
        while Instant::now() < deadline {
            let (_, _, cookie, _) = client.chunk();
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            sender.request(CMD_READ, 0, cookie, (at >> 40) % 65_536 * 4096, 4096);
            answers += 1;
        }
        println!("own client, depth {depth}: {} IOPS", answers / 3);
    }
    let url = format!("nbd+unix:///disk?socket={}", directory.path().join("nbd").display());
    for depth in ["1", "32"] {
        let said =
            run("qemu-img", &["bench", "-f", "raw", "-t", "none", "-c", "200000", "-d", depth, "-s", "4096", &url]);
        println!("qemu-img bench, depth {depth}, 200000 reads: {said}");
    }
    server.stop().unwrap();
}
