//! Where a domain's storage is, as name servers say it.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use simple_dns::rdata::{A, RData, SRV};
use simple_dns::{CLASS, Name, Packet, QTYPE, ResourceRecord, TYPE};

use crate::harness::{AUTHORITY, Client, Scratch, Server, port};

/// Where services are.
#[derive(Clone, Copy)]
struct Ports {
    hyperscsi: u16,
    visa: u16,
    iscsi: u16,
    iser: u16,
}

/// A name server on the loopback, until the test ends. Of `storage.test` it says that HyperSCSI is at a place where nobody is, and
/// otherwise at its port, as the others are; of `empty.test`, that there is none.
fn name_server(ports: Ports) -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let address = socket.local_addr().expect("its address");
    std::thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut question) {
            let question = Packet::parse(&question[..length]).expect("a question");
            let mut answer = Packet::new_reply(question.id());
            answer.questions.clone_from(&question.questions);
            let asked = &question.questions[0];
            let srv = |priority, port, target| {
                RData::SRV(SRV { priority, weight: 1, port, target: Name::new_unchecked(target) })
            };
            let a = |host: u8| RData::A(A { address: Ipv4Addr::new(127, 0, 0, host).into() });
            let data = match (&*asked.qname.to_string(), asked.qtype) {
                ("_hyperscsi._udp.storage.test", QTYPE::TYPE(TYPE::SRV)) => {
                    vec![srv(2, ports.hyperscsi, "here.test"), srv(1, ports.hyperscsi, "nobody.test")]
                }
                ("_visa._udp.storage.test" | "_visa._tcp.storage.test", QTYPE::TYPE(TYPE::SRV)) => {
                    vec![srv(1, ports.visa, "here.test")]
                }
                ("_iscsi-target._tcp.storage.test", QTYPE::TYPE(TYPE::SRV)) => vec![srv(1, ports.iscsi, "here.test")],
                ("_iser-target._tcp.storage.test", QTYPE::TYPE(TYPE::SRV)) => vec![srv(1, ports.iser, "here.test")],
                ("_hyperscsi._udp.empty.test", QTYPE::TYPE(TYPE::SRV)) => vec![srv(0, 0, "")],
                ("here.test", QTYPE::TYPE(TYPE::A)) => vec![a(1)],
                ("nobody.test", QTYPE::TYPE(TYPE::A)) => vec![a(99)],
                _ => vec![],
            };
            let records = data.into_iter().map(|data| ResourceRecord::new(asked.qname.clone(), CLASS::IN, 60, data));
            answer.answers = records.collect();
            socket.send_to(&answer.build_bytes_vec().expect("an answer"), from).expect("it is sent");
        }
    });
    address
}

#[test]
fn a_domains_srv_records_lead_to_its_server() {
    let scratch = Scratch::new();
    let ports = Ports { hyperscsi: port(), visa: port(), iscsi: port(), iser: port() };
    let words = [("hs-ip", ports.hyperscsi), ("visa", ports.visa), ("iscsi", ports.iscsi), ("iser", ports.iser)];
    let wires = words.map(|(word, port)| format!("{word}:127.0.0.1:{port}"));
    let mut server = Server::start_on(&scratch, &wires.each_ref().map(String::as_str), &["disk0=ram:8M"], &[]);
    let (client, names) = (Client::new(&scratch, "alice"), name_server(ports).to_string());
    let run = |arguments: &[&str]| client.run(&[arguments, &["--name-server", &names]].concat());

    let listed = run(&["ls", "hs+ip://storage.test"]);
    assert!(listed.code == Some(0) && listed.stdout.contains("disk0"), "{}{}", listed.stdout, listed.stderr);
    let told = run(&["info", "hs+ip://storage.test/disk0"]);
    assert!(told.code == Some(0) && told.stdout.contains("8 MiB"), "{}{}", told.stdout, told.stderr);
    for scheme in ["visa", "visa+tcp"] {
        let told = run(&["info", &format!("{scheme}://storage.test/disk0")]);
        assert!(told.code == Some(0) && told.stdout.contains("8 MiB"), "{scheme}: {}{}", told.stdout, told.stderr);
    }
    // Each of these speaks to its own port only: who is led to the other one says so, and fails.
    for (scheme, wire) in [("iscsi", "iSCSI"), ("iser", "iSER")] {
        let told = run(&["info", &format!("{scheme}://storage.test/{AUTHORITY}:disk0/0")]);
        let is_told = told.stdout.contains("8 MiB") && told.stdout.contains(wire);
        assert!(told.code == Some(0) && is_told, "{scheme}: {}{}", told.stdout, told.stderr);
    }
    // A port that is named is meant: no record is asked for.
    let host = format!("hs+ip://here.test:{}", ports.hyperscsi);
    let listed = run(&["ls", &host]);
    assert!(listed.code == Some(0) && listed.stdout.contains("disk0"), "{}{}", listed.stdout, listed.stderr);

    let none = run(&["ls", "hs+ip://empty.test"]);
    assert!(none.code != Some(0) && none.stderr.contains("has no such service"), "{}", none.stderr);
    let unknown = run(&["ls", "hs+ip://unknown.test"]);
    assert!(unknown.code != Some(0) && unknown.stderr.contains("unknown.test"), "{}", unknown.stderr);
    assert!(server.stop().success(), "{}", server.log());
}
