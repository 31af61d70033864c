//! iSER by RDMA adapters, in memory.

use std::time::{Duration, Instant};

use sanwire_initiator::{Client, ClientOptions, ConnectError, IserPath, Server as Place, Url, targets};
use sanwire_iscsi::PortalCarrier;
use sanwire_iwarp::Event;
use sanwire_rdma::{Adapters, Rdma};
use sanwire_server::{
    AllowList, Answer, Asker, ManagementHandle, Manager, Request, Response, Server, ServerConfig, TargetNodeConfig,
    Wire,
};
use sanwire_sim::rdma::{AdapterPlan, PATH_MTU_BYTES};

use super::{NAME, all, patterned};
use crate::adapters::Fabric;
use crate::again::refusal;
use crate::{config, options};

fn plain() -> Fabric {
    Fabric::new([AdapterPlan::plain(); 2])
}

fn settings(fabric: &Fabric, volume: &str) -> ServerConfig {
    let by_adapter: Wire = "iser:127.0.0.1,path=rdma".parse().unwrap();
    ServerConfig {
        wires: vec![by_adapter.at(([127, 0, 0, 1], 0).into()), crate::wire("iser")],
        exports: vec![TargetNodeConfig::of_volume("disk", AllowList::default()).unwrap()],
        rdma: fabric.rdma(),
        ..config(&[volume])
    }
}

fn url(wires: &[Wire]) -> Url {
    let (portal, _) = wires[0].portal().unwrap();
    format!("iser://{portal}/{NAME}/0").parse().unwrap()
}

fn by(fabric: &Fabric) -> ClientOptions {
    let mut options = ClientOptions { rdma: fabric.rdma(), ..options() };
    options.iscsi.iser_path = IserPath::Rdma;
    options
}

#[test]
fn what_is_written_by_an_adapter_is_read_again() {
    let fabric = plain();
    let target = Server::start(settings(&fabric, "disk=ram:64M")).unwrap();
    let mut client = Client::connect(&url(target.wires()), &by(&fabric)).unwrap();
    let volume = client.open("0").unwrap();
    client.block_on(async {
        let lengths = [512usize, 4096, 8192, 8704, 65_536, 1 << 20, (1 << 20) + 512, 16 << 20];
        for (round, length) in lengths.into_iter().enumerate() {
            let data = patterned(volume.buffer(length).await.unwrap(), round);
            volume.write(512, data.clone()).await.unwrap();
            let back = volume.read(512, volume.buffer(length).await.unwrap()).await.unwrap();
            assert!(*back == *data, "{length} bytes");
        }
        volume.flush().await.unwrap();
    });
    assert_eq!(client.adapter().as_deref(), Some("memory0 (RDMA in memory)"));
    drop((volume, client));
    target.stop().unwrap();
}

/// Short queues, few keys, no Send with Invalidate, late and merged completions: whatever the adapters are like.
#[test]
fn many_transfers_are_under_way_by_adapters_of_all_kinds() {
    let path = std::env::temp_dir().join(format!("sanwire-adapter-{}.img", std::process::id()));
    for seed in 0..6 {
        let mut random = sanwire_sim::random::Random::new(seed);
        let fabric = Fabric::new([AdapterPlan::any(&mut random), AdapterPlan::any(&mut random)]);
        let target = Server::start(settings(&fabric, &format!("disk=file:{},size=64M", path.display()))).unwrap();
        let mut options = by(&fabric);
        options.iscsi.wishes.connections = 1 + seed as u16 % 3;
        let mut client = Client::connect(&url(target.wires()), &options).unwrap();
        let volume = client.open("0").unwrap();
        for length in [512u64, 4096, 256 << 10] {
            let jobs = (0..48u64).map(|number| {
                let volume = volume.clone();
                async move {
                    let data = patterned(volume.buffer(length as usize).await.unwrap(), number as usize);
                    volume.write(number * length, data.clone()).await.unwrap();
                    let buffer = volume.buffer(length as usize).await.unwrap();
                    let back = volume.read(number * length, buffer).await.unwrap();
                    assert!(*back == *data, "{number}");
                }
            });
            let jobs: Vec<_> = jobs.map(Box::pin).collect();
            client.block_on(all(jobs));
        }
        drop((volume, client));
        target.stop().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_connection_that_is_lost_is_a_pause() {
    let fabric = plain();
    let target = Server::start(settings(&fabric, "disk=ram:64M")).unwrap();
    let mut client = Client::connect(&url(target.wires()), &by(&fabric)).unwrap();
    let volume = client.open("0").unwrap();
    for (round, is_noticed_by) in [[true, true], [true, false], [false, true]].into_iter().enumerate() {
        let before = fabric.connections();
        fabric.cut_all(is_noticed_by);
        client.block_on(async {
            let data = patterned(volume.buffer(1 << 20).await.unwrap(), round);
            volume.write(4096, data.clone()).await.unwrap();
            let back = volume.read(4096, volume.buffer(1 << 20).await.unwrap()).await.unwrap();
            assert!(*back == *data, "round {round}");
        });
        assert!(fabric.connections() > before, "round {round}: another connection");
    }
    drop((volume, client));
    target.stop().unwrap();
}

#[test]
fn a_portal_by_adapters_tells_of_those_by_adapters_and_one_by_tcp_of_those_by_tcp() {
    let fabric = plain();
    let target = Server::start(settings(&fabric, "disk=ram:1M")).unwrap();
    let over_tcp = options();
    for (wire, options) in target.wires().iter().zip([by(&fabric), over_tcp]) {
        let place = url(std::slice::from_ref(wire));
        let Place::Iscsi(host) = &place.server else { panic!("{place}") };
        let found = targets(host, &options).unwrap();
        let expected = [(format!("127.0.0.1:{}", host.port), 1)];
        assert_eq!((found[0].name.as_str(), &found[0].addresses[..]), (NAME, &expected[..]), "{wire}");
        let others = found[0].others.iter().flatten().map(|other| (other.carrier, other.address.clone()));
        let by_adapter = |wire: &Wire| wire.to_string().contains("path=rdma");
        let is_other = |other: &&Wire| by_adapter(other) != by_adapter(wire);
        let other = target.wires().iter().find(is_other).and_then(Wire::portal).unwrap().0.to_string();
        let carrier = if by_adapter(wire) { PortalCarrier::Iwarp } else { PortalCarrier::Adapter };
        assert_eq!(others.collect::<Vec<_>>(), [(carrier, other)], "{wire}");
    }
    target.stop().unwrap();
}

#[test]
fn who_is_not_taken_by_an_adapter_hears_why() {
    let fabric = plain();
    let target = Server::start(settings(&fabric, "disk=ram:1M")).unwrap();
    let patience = ClientOptions { connect_patience: Duration::from_secs(2), ..by(&fabric) };
    let there = url(target.wires());
    let absent = there.to_string().replace(NAME, "iqn.2026-11.org.sanwire:absent").parse().unwrap();
    let said = refusal(&absent, &patience, "refused the login");
    assert!(said.contains("refused the login"), "{said}");
    // Nobody listens there.
    let nobody = format!("iser://127.0.0.1:1/{NAME}/0").parse().unwrap();
    let words = "there is no RDMA connection to the target: ";
    let said = refusal(&nobody, &patience, words);
    assert!(said.contains(words), "{said}");
    target.stop().unwrap();
}

/// As over TCP: so many silent ones have places, newcomers push them out, and each of them has 5 seconds.
#[test]
fn initiators_that_say_nothing_keep_nobody_from_logging_in_by_adapters() {
    let fabric = plain();
    let target = Server::start(settings(&fabric, "disk=ram:1M")).unwrap();
    let (portal, _) = target.wires()[0].portal().unwrap();
    let mut silent: Vec<_> = (0..200).map(|_| fabric.connect(portal).unwrap().queue_pair).collect();
    let mut client = Client::connect(&url(target.wires()), &by(&fabric)).unwrap();
    let volume = client.open("0").unwrap();
    client.block_on(async { volume.read(0, volume.buffer(4096).await.unwrap()).await }).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while !silent.is_empty() {
        assert!(Instant::now() < until, "{} are still there", silent.len());
        silent.retain_mut(|queue_pair| {
            !std::iter::from_fn(|| queue_pair.poll_event()).any(|event| matches!(event, Event::Closed(_)))
        });
        std::thread::sleep(Duration::from_millis(20));
    }
    client.block_on(async { volume.read(0, volume.buffer(4096).await.unwrap()).await }).unwrap();
    drop((volume, client));
    target.stop().unwrap();
}

#[test]
fn without_adapters_client_and_server_say_so() {
    let none = ClientOptions { rdma: Rdma::default(), ..by(&plain()) };
    match Client::connect(&format!("iser://127.0.0.1:1/{NAME}/0").parse().unwrap(), &none) {
        Err(error @ ConnectError::NoRdma { .. }) => {
            assert!(error.to_string().ends_with("leave --iser-path out"), "{error}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("there is no way"),
    }
    let config = ServerConfig { rdma: Rdma::default(), ..settings(&plain(), "disk=ram:1M") };
    let said = Server::start(config).map(|_| ()).unwrap_err().to_string();
    assert!(said.starts_with("wire iser:127.0.0.1:0,path=rdma: "), "{said}");
}

/// Sessions, statistics and wires know of it, and a session can be ended.
#[test]
fn a_session_by_an_adapter_is_seen_counted_and_ended() {
    let fabric = plain();
    let config = settings(&fabric, "disk=ram:64M");
    let again = config.clone();
    let manager = Manager::start(config, Box::new(move || Ok(again.clone()))).unwrap();
    let wires = manager.target().wires().to_vec();
    let desk = ManagementHandle::new(manager);
    let ask = |request: Request| match desk.handle(&Asker::Signal { signal: "test" }, request) {
        Response::Done(answer) => answer,
        Response::Refused(refusal) => panic!("{}", refusal.reason),
    };
    let mut client = Client::connect(&url(&wires), &by(&fabric)).unwrap();
    let volume = client.open("0").unwrap();
    let write = |client: &mut Client| {
        client.block_on(async {
            let data = patterned(volume.buffer(1 << 20).await.unwrap(), 1);
            volume.write(0, data).await.unwrap();
        });
    };
    write(&mut client);
    let Answer::Sessions(sessions) = ask(Request::Sessions) else { panic!("no sessions") };
    assert_eq!(sessions[0].adapter.as_deref(), Some("memory0 (RDMA in memory)"));
    assert_eq!((sessions[0].iser_path.as_deref(), sessions[0].spoken()), (Some("rdma"), "iser"));
    let Answer::Links(links) = ask(Request::Links) else { panic!("no links") };
    assert_eq!((links[0].connections, links[1].connections), (Some(1), Some(0)), "{links:?}");
    assert!(links[0].received_bytes > 1 << 20 && links[1].received_bytes == 0, "{links:?}");
    let Answer::Statistics(statistics) = ask(Request::Statistics) else { panic!("no statistics") };
    let rdma = statistics.connections[0].data.as_ref().and_then(|data| data.rdma.clone()).expect("RDMA");
    assert_eq!((rdma.adapter.as_deref(), rdma.segment_bytes), (Some("memory0 (RDMA in memory)"), Some(PATH_MTU_BYTES)));
    assert!(rdma.credits > 0 && rdma.stags_ever > 0 && rdma.fpdu_max_bytes == 0, "{rdma:?}");
    let before = fabric.connections();
    ask(Request::DropSession { session: sessions[0].id.clone() });
    write(&mut client);
    assert!(fabric.connections() > before, "it came again");
    drop((volume, client, desk));
}
