//! A host with several addresses: the first that answers is used, and after an outage any other.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sanwire_initiator::{Client, ClientOptions, ConnectError, Url};
use sanwire_server::{AllowList, Server, ServerConfig, TargetNodeConfig, Wire};
use simple_dns::rdata::{A, RData, SRV};
use simple_dns::{CLASS, Name, Packet, QTYPE, ResourceRecord, TYPE};

use super::again::persist;
use super::{config, options};

const HERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const THERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
const NOBODY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 4);

/// Says where the service is: of two hosts the first has an address where nobody is; a third one moves. It answers until the test ends.
fn name_server(port: u16, moving: Arc<Mutex<Ipv4Addr>>) -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut question) {
            let question = Packet::parse(&question[..length]).unwrap();
            let mut answer = Packet::new_reply(question.id());
            answer.questions.clone_from(&question.questions);
            let asked = &question.questions[0];
            let srv =
                |priority, target| RData::SRV(SRV { priority, weight: 1, port, target: Name::new_unchecked(target) });
            let a = |address: Ipv4Addr| RData::A(A { address: address.into() });
            let data = match (&*asked.qname.to_string(), asked.qtype) {
                ("_hyperscsi._udp.storage.test", QTYPE::TYPE(TYPE::SRV)) => vec![srv(2, "b.test"), srv(1, "a.test")],
                ("a.test", QTYPE::TYPE(TYPE::A)) => vec![a(NOBODY), a(HERE)],
                ("b.test", QTYPE::TYPE(TYPE::A)) => vec![a(THERE)],
                ("moving.test", QTYPE::TYPE(TYPE::A)) => vec![a(*moving.lock().unwrap())],
                _ => vec![],
            };
            let records = data.into_iter().map(|data| ResourceRecord::new(asked.qname.clone(), CLASS::IN, 60, data));
            answer.answers = records.collect();
            socket.send_to(&answer.build_bytes_vec().unwrap(), from).unwrap();
        }
    });
    address
}

/// The name server may be halted for longer than it is waited for.
fn connect(url: &Url, options: &ClientOptions) -> Client {
    persist(|| Client::connect(url, options), |error: &ConnectError| matches!(error, ConnectError::Resolve { .. }))
}

/// By HyperSCSI and by iSCSI, at the same port number.
fn wires_at(address: Ipv4Addr, port: u16) -> Vec<Wire> {
    let address = SocketAddr::from((address, port));
    ["hs-ip", "iscsi"].map(|word| super::wire(word).at(address)).to_vec()
}

/// A port that is free by UDP, and by TCP when it is tried.
fn free_port() -> u16 {
    UdpSocket::bind((HERE, 0)).and_then(|socket| socket.local_addr()).unwrap().port()
}

/// A server that was here is elsewhere after an outage: a client that found it by this URL goes on there.
fn goes_on_elsewhere(test: &str, url: &str, moving: &Arc<Mutex<Ipv4Addr>>) {
    let directory = std::env::temp_dir().join(format!("sanwire-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let spec = format!("disk=file:{},size=16M", directory.join("disk.img").display());
    let exports = vec![TargetNodeConfig::of_volume("disk", AllowList::default()).unwrap()];
    let port = free_port();
    let mut settings = ServerConfig { wires: wires_at(HERE, port), exports, ..config(&[&spec]) };
    let target = Server::start(settings.clone()).unwrap();
    let mut options = options();
    options.name_servers = vec![name_server(port, Arc::clone(moving))];
    options.reconnect_patience = Some(Duration::from_secs(60));
    let url: Url = url.replace("PORT", &port.to_string()).parse().unwrap();

    let mut client = connect(&url, &options);
    let volume = client.open(if url.to_string().starts_with("iscsi") { "0" } else { "disk" }).unwrap();
    let data = sanwire_buffer::Slice::from(vec![0x5a; 65_536]);
    client.block_on(volume.write(0, data.clone())).unwrap();
    target.stop().unwrap();
    *moving.lock().unwrap() = THERE;
    settings.wires = wires_at(THERE, port);
    let target = Server::start(settings).unwrap();
    client.block_on(volume.write(65_536, data)).unwrap();
    let back = client.block_on(async { volume.read(0, volume.buffer(131_072).await?).await }).unwrap();
    assert!(back.iter().all(|byte| *byte == 0x5a));
    drop((volume, client));
    target.stop().unwrap();
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn the_address_that_answers_is_used_and_after_an_outage_another_one() {
    goes_on_elsewhere("names", "hs+ip://storage.test/disk", &Arc::new(Mutex::new(HERE)));
}

#[test]
fn a_host_that_has_moved_is_looked_up_again_after_an_outage() {
    goes_on_elsewhere("moved", "hs+ip://moving.test:PORT/disk", &Arc::new(Mutex::new(HERE)));
    let url = "iscsi://moving.test:PORT/iqn.2026-11.org.sanwire:disk/0";
    goes_on_elsewhere("moved-iscsi", url, &Arc::new(Mutex::new(HERE)));
}

/// As a host that boots before its server has its address.
#[test]
fn a_host_is_looked_up_again_while_its_server_was_never_found() {
    for (url, name) in
        [("hs+ip://moving.test:PORT/disk", "disk"), ("iscsi://moving.test:PORT/iqn.2026-11.org.sanwire:disk/0", "0")]
    {
        let port = free_port();
        let exports = vec![TargetNodeConfig::of_volume("disk", AllowList::default()).unwrap()];
        let target =
            Server::start(ServerConfig { wires: wires_at(THERE, port), exports, ..config(&["disk=ram:1M"]) }).unwrap();
        let moving = Arc::new(Mutex::new(NOBODY));
        let mut options = options();
        options.name_servers = vec![name_server(port, Arc::clone(&moving))];
        let url: Url = url.replace("PORT", &port.to_string()).parse().unwrap();
        let client = std::thread::spawn(move || connect(&url, &options));
        std::thread::sleep(Duration::from_millis(300));
        *moving.lock().unwrap() = THERE;
        client.join().unwrap().open(name).unwrap();
        target.stop().unwrap();
    }
}
