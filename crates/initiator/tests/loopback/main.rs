//! A server and a client of this process, over UDP or TCP on the loopback.

mod adapters;
mod again;
mod exclusive;
mod foreign;
mod iser;
mod long;
mod names;
mod numbers;
mod power;
mod terms;
mod timed;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use sanwire_core::{Lun, Protection};
use sanwire_hyperscsi::{Identity, Recovery, random};
use sanwire_initiator::{Client, ClientOptions, ConnectError, VolumeError};
use sanwire_io::file::EngineKind;
use sanwire_server::{
    AllowList, Answer, Asker, ClientConfig, Compression, ManagementHandle, Manager, Origin, Request, Response, Server,
    ServerConfig, VolumeConfig, Wire,
};

use again::persist;

fn config(volumes: &[&str]) -> ServerConfig {
    sanwire_store_file::register();
    ServerConfig {
        name: "test-server".into(),
        identity: Identity::from_private(random().unwrap()).unwrap(),
        psk: [0; 32],
        wires: vec![wire("hs-ip")],
        protection: Protection::Checksum,
        compression: Compression::Off,
        rekey_interval: ServerConfig::REKEY_INTERVAL_DEFAULT,
        allow: AllowList::default(),
        volumes: volumes
            .iter()
            .enumerate()
            .map(|(lun, spec)| VolumeConfig {
                lun: Lun::new(lun as u16).unwrap(),
                spec: spec.parse().unwrap(),
                origin: Origin::CommandLine,
            })
            .collect(),
        exports: vec![],
        discovery: Default::default(),
        shards: 2,
        memory_bytes: ServerConfig::MEMORY_BYTES_DEFAULT,
        ring_bytes: 1 << 20,
        engine: EngineKind::Auto,
        visa: Default::default(),
        recovery: Recovery::default(),
        accepted: Default::default(),
        pools: Vec::new(),
        state_directory: None,
        audit_log: None,
        announced: Default::default(),
        metrics_of_clients: false,
        rdma: Default::default(),
        direct_copies: Default::default(),
        clients: Vec::new(),
    }
}

/// A wire of this kind on the loopback, with whichever port is free.
fn wire(word: &str) -> Wire {
    format!("{word}:127.0.0.1").parse::<Wire>().unwrap().at(([127, 0, 0, 1], 0).into())
}

fn url(target: &Server, volume: &str) -> sanwire_initiator::Url {
    let address = target.wires()[0].address().unwrap();
    format!("hs+ip://{address}/{volume}").parse().unwrap()
}

#[test]
fn what_is_written_is_read_again() {
    let target = Server::start(config(&["ram0=ram:64M", "big=ram:8M,block=4096"])).unwrap();
    let options = options();
    let mut client = Client::connect(&url(&target, "ram0"), &options).unwrap();
    let names: Vec<String> = client.volumes().unwrap().into_iter().map(|volume| volume.name.to_string()).collect();
    assert_eq!(names, ["ram0", "big"]);
    let volume = client.open("ram0").unwrap();
    assert_eq!(volume.info().size_bytes, 64 << 20);
    client.block_on(async {
        for (round, length) in [512usize, 4096, 65_536, 1 << 20].into_iter().enumerate() {
            let offset = (round as u64) << 20;
            let mut frame = volume.buffer(length).await.unwrap();
            for (index, byte) in frame.iter_mut().enumerate() {
                *byte = (index * 7 + round) as u8;
            }
            let data = frame.freeze();
            volume.write(offset, data.clone()).await.unwrap();
            let back = volume.read(offset, volume.buffer(length).await.unwrap()).await.unwrap();
            assert!(*back == *data, "{length} bytes");
        }
        volume.flush().await.unwrap();
        volume.discard(1 << 20, 1 << 20).await.unwrap();
        let back = volume.read(1 << 20, volume.buffer(4096).await.unwrap()).await.unwrap();
        assert!(back.iter().all(|byte| *byte == 0));
        volume.write_zeroes(0, 32 << 20).await.unwrap();
        let past = volume.read(64 << 20, volume.buffer(512).await.unwrap()).await;
        assert!(matches!(past, Err(VolumeError::OutOfRange { .. })));
    });
    drop((volume, client));
    target.stop().unwrap();
}

#[test]
fn errors_say_what_to_do() {
    let target = Server::start(config(&["ram0=ram:1M"])).unwrap();
    let mut options = options();
    let mut client = Client::connect(&url(&target, "nope"), &options).unwrap();
    let error = client.open("nope").unwrap_err();
    assert_eq!(error.to_string(), "test-server has no volume 'nope' for this client; it has: ram0");
    options.psk = [1; 32];
    match Client::connect(&url(&target, "ram0"), &options) {
        Err(ConnectError::Handshake { failure: sanwire_initiator::Failure::Refused(_), .. }) => {}
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("another password was taken"),
    }
}

#[test]
fn two_servers_do_not_share_a_port() {
    let mut settings = config(&["ram0=ram:1M"]);
    let target = Server::start(settings.clone()).unwrap();
    settings.wires = target.wires().to_vec();
    let error = Server::start(settings).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("is another server running on 127.0.0.1:"), "{error}");
    target.stop().unwrap();
}

#[test]
fn a_restarted_server_is_a_pause() {
    let directory = std::env::temp_dir().join(format!("sanwire-loopback-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let spec = format!("disk=file:{},size=16M", directory.join("disk.img").display());
    let mut settings = config(&[&spec]);
    let target = Server::start(settings.clone()).unwrap();
    settings.wires = target.wires().to_vec();
    let mut client = Client::connect(&url(&target, "disk"), &options()).unwrap();
    let volume = client.open("disk").unwrap();
    let data = sanwire_buffer::Slice::from(vec![0x5a; 65_536]);
    client.block_on(volume.write(0, data.clone())).unwrap();
    target.stop().unwrap();
    let restart = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        Server::start(settings).unwrap()
    });
    client.block_on(volume.write(65_536, data)).unwrap();
    let back = client.block_on(async { volume.read(0, volume.buffer(131_072).await?).await }).unwrap();
    assert!(back.iter().all(|byte| *byte == 0x5a));
    drop((volume, client));
    restart.join().unwrap().stop().unwrap();
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_replaced_volume_is_not_written_to() {
    let mut settings = config(&["disk=ram:16M"]);
    let target = Server::start(settings.clone()).unwrap();
    settings.wires = target.wires().to_vec();
    let mut client = Client::connect(&url(&target, "disk"), &options()).unwrap();
    let volume = client.open("disk").unwrap();
    client.block_on(volume.write(0, sanwire_buffer::Slice::from(vec![1; 4096]))).unwrap();
    target.stop().unwrap();
    // The memory is gone with the server: what comes back under the same name is another disk.
    let target = Server::start(settings).unwrap();
    let write = client.block_on(volume.write(4096, sanwire_buffer::Slice::from(vec![2; 4096])));
    assert!(write.is_err(), "{write:?}");
    let mut fresh = Client::connect(&url(&target, "disk"), &options()).unwrap();
    let other = fresh.open("disk").unwrap();
    let back = fresh.block_on(async { other.read(0, other.buffer(8192).await?).await }).unwrap();
    assert!(back.iter().all(|byte| *byte == 0), "nothing was written to the other disk");
    drop((volume, client, other, fresh));
    target.stop().unwrap();
}

#[test]
fn a_server_that_is_away_for_too_long_is_used_again_when_it_is_back() {
    let directory = std::env::temp_dir().join(format!("sanwire-late-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let mut settings = config(&[&format!("disk=file:{},size=16M", directory.join("disk.img").display())]);
    let target = Server::start(settings.clone()).unwrap();
    settings.wires = target.wires().to_vec();
    let mut options = options();
    options.reconnect_patience = Some(Duration::from_millis(200));
    let mut client = Client::connect(&url(&target, "disk"), &options).unwrap();
    let volume =
        persist(|| client.open("disk"), |error: &ConnectError| matches!(error, ConnectError::Handshake { .. }));
    let is_away = |error: &VolumeError| matches!(error, VolumeError::Disconnected { .. });
    let write =
        |client: &mut Client, byte| client.block_on(volume.write(4096, sanwire_buffer::Slice::from(vec![byte; 4096])));
    persist(|| write(&mut client, 1), is_away);
    target.stop().unwrap();
    for _ in 0..2 {
        let away = write(&mut client, 2).unwrap_err();
        assert!(is_away(&away), "{away}");
    }
    assert!(matches!(client.open("other"), Err(ConnectError::Handshake { .. })), "nothing is asked meanwhile");
    let target = Server::start(settings).unwrap();
    while write(&mut client, 3).is_err() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let read = async || volume.read(4096, volume.buffer(4096).await?).await;
    let back = persist(|| client.block_on(read()), is_away);
    assert!(back.iter().all(|byte| *byte == 3));
    drop((volume, client));
    target.stop().unwrap();
    std::fs::remove_dir_all(directory).unwrap();
}

/// Nanoseconds of processor time that this thread has used.
fn thread_cpu_nanos() -> u64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    statistics.split(' ').next().unwrap().parse().unwrap()
}

/// Polls all futures together until each is done.
async fn all<F: Future<Output = Result<(), VolumeError>>>(futures: impl IntoIterator<Item = F>) {
    let mut flying: Vec<_> = futures.into_iter().map(Box::pin).collect();
    std::future::poll_fn(|context| {
        flying.retain_mut(|future| match future.as_mut().poll(context) {
            std::task::Poll::Ready(result) => {
                result.unwrap();
                false
            }
            std::task::Poll::Pending => true,
        });
        if flying.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

#[test]
fn a_deep_queue_outlives_a_restart_and_a_resize() {
    write_deep_beyond_a_restart();
}

/// Gives the processor time that the writing thread has used.
fn write_deep_beyond_a_restart() -> Duration {
    let directory = std::env::temp_dir().join(format!("sanwire-deep-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let spec = |size, more| format!("disk=file:{},size={size}{more}", directory.join("disk.img").display());
    // Slow enough that the server stops with every place taken.
    let mut settings = config(&[&spec("16M", ",delay=write:10s")]);
    let target = Server::start(settings.clone()).unwrap();
    settings.wires = target.wires().to_vec();
    settings.volumes = config(&[&spec("32M", ",grow")]).volumes;
    let mut client = Client::connect(&url(&target, "disk"), &options()).unwrap();
    let volume = client.open("disk").unwrap();
    let restart = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        target.stop().unwrap();
        std::thread::sleep(Duration::from_millis(1500));
        Server::start(settings).unwrap()
    });
    let before = thread_cpu_nanos();
    client.block_on(all((0..200u64).map(|at| {
        let data = sanwire_buffer::Slice::from(vec![at as u8; 4096]);
        let volume = &volume;
        async move { volume.write(at * 4096, data).await }
    })));
    let used = Duration::from_nanos(thread_cpu_nanos() - before);
    assert_eq!(volume.info().size_bytes, 32 << 20, "the volume has grown");
    let end = (32 << 20) - 4096;
    let back = client.block_on(async { volume.read(199 * 4096, volume.buffer(4096).await?).await }).unwrap();
    assert!(back.iter().all(|byte| *byte == 199));
    client.block_on(async { volume.read(end, volume.buffer(4096).await?).await }).unwrap();
    drop((volume, client));
    restart.join().unwrap().stop().unwrap();
    std::fs::remove_dir_all(directory).unwrap();
    used
}

#[test]
fn a_server_that_its_client_pauses_answers_when_it_may_go_on() {
    let target = Server::start(config(&["disk=ram:16M"])).unwrap();
    let mut client = Client::connect(&url(&target, "disk"), &options()).unwrap();
    let volume = client.open("disk").unwrap();
    assert!(client.pause(true));
    let mut read = Box::pin(async { volume.read(0, volume.buffer(4096).await?).await });
    let (is_over, mut sleeper) = (Arc::new(AtomicBool::new(false)), None);
    let answer = client.block_on(std::future::poll_fn(|context| {
        if let Poll::Ready(answer) = read.as_mut().poll(context) {
            return Poll::Ready(Some(answer));
        }
        if is_over.load(Ordering::Acquire) {
            return Poll::Ready(None);
        }
        let (is_over, waker) = (Arc::clone(&is_over), context.waker().clone());
        sleeper.get_or_insert_with(|| {
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                is_over.store(true, Ordering::Release);
                waker.wake();
            })
        });
        Poll::Pending
    }));
    assert!(answer.is_none(), "it was answered");
    client.pause(false);
    assert_eq!(client.block_on(read).unwrap().len(), 4096);
    sleeper.unwrap().join().unwrap();
    drop((volume, client));
    target.stop().unwrap();
}

#[test]
fn another_thread_pauses_the_server_of_a_connection_that_is_run_in_the_background() {
    let target = Server::start(config(&["disk=ram:16M"])).unwrap();
    let mut client = Client::connect(&url(&target, "disk"), &options()).unwrap();
    let volume = client.open("disk").unwrap();
    let pauser = client.pauser();
    let background = client.run_in_background().unwrap();
    let patience = Duration::from_secs(20);
    for is_paused in [true, false, true, false] {
        assert!(pauser.pause(is_paused, patience), "the server has heard {is_paused}");
    }
    drop(volume);
    background.join().unwrap();
    assert!(!pauser.pause(true, Duration::ZERO), "nobody is there");
    target.stop().unwrap();
}

#[test]
fn a_connection_without_volumes_ends_also_while_the_server_is_away() {
    for patience in [None, Some(Duration::from_millis(500))] {
        let target = Server::start(config(&["ram0=ram:1M"])).unwrap();
        let mut options = options();
        options.reconnect_patience = patience;
        let mut client = Client::connect(&url(&target, "ram0"), &options).unwrap();
        let volume =
            persist(|| client.open("ram0"), |error: &ConnectError| matches!(error, ConnectError::Handshake { .. }));
        let thread = client.run_in_background().unwrap();
        target.stop().unwrap();
        std::thread::sleep(Duration::from_millis(1000));
        drop(volume);
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while !thread.is_finished() {
            assert!(std::time::Instant::now() < end, "the thread goes on with {patience:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        thread.join().unwrap();
    }
}

#[test]
fn a_deep_queue_does_not_shut_the_others_out() {
    let target = Server::start(config(&["deep=ram:1M,delay=read:20ms", "other=ram:1M"])).unwrap();
    let mut client = Client::connect(&url(&target, "deep"), &options()).unwrap();
    let (deep, other) = (client.open("deep").unwrap(), client.open("other").unwrap());
    let read = async |volume: &sanwire_initiator::Volume| volume.read(0, volume.buffer(512).await?).await.map(drop);
    let is_over = std::cell::Cell::new(false);
    let ended = client.block_on(async {
        let mut crowd: Vec<_> = (0..1000).map(|_| Box::pin(read(&deep))).collect();
        let mut single = Box::pin(async {
            for _ in 0..5 {
                read(&other).await?;
            }
            Ok::<(), VolumeError>(())
        });
        std::future::poll_fn(|context| {
            crowd.retain_mut(|future| future.as_mut().poll(context).is_pending());
            is_over.set(single.as_mut().poll(context).is_ready());
            if is_over.get() || crowd.is_empty() {
                std::task::Poll::Ready(crowd.len())
            } else {
                std::task::Poll::Pending
            }
        })
        .await
    });
    assert!(is_over.get() && ended > 300, "{ended} of 1000 reads of the deep queue were left");
    drop((deep, other, client));
    target.stop().unwrap();
}

/// Resident memory of this process, in bytes.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn a_storm_of_management_does_not_disturb_data() {
    manage_in_a_storm();
}

/// Gives the bytes by which the memory of this process has grown.
fn manage_in_a_storm() -> usize {
    let (honest, permitted, stranger) = (options(), options(), options());
    let manages = ClientConfig { manage: true, ..ClientConfig::new(permitted.identity.client_id()) };
    let settings = ServerConfig { clients: vec![manages], ..config(&["ram0=ram:16M"]) };
    let manager = Manager::start(settings, Box::new(|| Err("there is no file".into()))).unwrap();
    let url = url(manager.target(), "ram0");
    let desk = ManagementHandle::new(manager);
    let storm = |options: ClientOptions, part: &'static [u8]| {
        let mut client = Client::connect(&url, &options).unwrap();
        std::thread::spawn(move || {
            for round in 0..500 {
                // Every other one is a change that is refused.
                let request: &[u8] = if round % 2 == 0 { br#"{"do":"statistics"}"# } else { br#"{"do":"reload"}"# };
                let answer = client.administer(request).unwrap();
                assert!(answer.windows(part.len()).any(|window| window == part) || round % 2 == 1, "{answer:?}");
            }
        })
    };
    let mut client = Client::connect(&url, &honest).unwrap();
    let volume = client.open("ram0").unwrap();
    let mut turn = |round: u64| {
        let offset = round % 64 * 65_536;
        let data = sanwire_buffer::Slice::from(vec![round as u8; 65_536]);
        client.block_on(async {
            volume.write(offset, data.clone()).await.unwrap();
            let back = volume.read(offset, volume.buffer(65_536).await.unwrap()).await.unwrap();
            assert!(*back == *data);
        });
    };
    (0..64).for_each(&mut turn);
    let before_bytes = resident_bytes();
    let storms = [storm(permitted, b"connections"), storm(stranger, b"may not manage")];
    let mut rounds = 0;
    while storms.iter().any(|storm| !storm.is_finished()) {
        turn(rounds);
        rounds += 1;
    }
    storms.into_iter().for_each(|storm| storm.join().unwrap());
    assert!(rounds > 10, "the data went on");
    let grown = resident_bytes().saturating_sub(before_bytes);
    let by = Asker::Signal { signal: "test" };
    let Response::Done(Answer::Statistics(statistics)) = desk.handle(&by, Request::Statistics) else { panic!() };
    assert_eq!((statistics.dropped["management_without_permission"], statistics.volumes[0].errors), (500, 0));
    assert!(statistics.volumes[0].commands >= 2 * rounds);
    drop((volume, client));
    desk.end().unwrap().stop().unwrap();
    grown
}

/// Those of a client that waits also for a server on a busy machine.
fn options() -> ClientOptions {
    ClientOptions { connect_patience: Duration::from_secs(60), ..ClientOptions::anonymous().unwrap() }
}
