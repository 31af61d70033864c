//! Where a domain's storage is, as name servers say it.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use simple_dns::rdata::{A, RData, SRV};
use simple_dns::{CLASS, Name, Packet, QTYPE, ResourceRecord, TYPE};

use crate::harness::{Client, Scratch, Server, port};

/// A name server on the loopback, until the test ends. Of `storage.test` it says that HyperSCSI is at a place where nobody is, and
/// otherwise at this port, and VISA at that one; of `empty.test`, that there is none.
fn name_server(port: u16, visa: u16) -> SocketAddr {
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
                    vec![srv(2, port, "here.test"), srv(1, port, "nobody.test")]
                }
                ("_visa._udp.storage.test" | "_visa._tcp.storage.test", QTYPE::TYPE(TYPE::SRV)) => {
                    vec![srv(1, visa, "here.test")]
                }
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
    let (visa, port) = (port(), port());
    let wires = [format!("hs-ip:127.0.0.1:{port}"), format!("visa:127.0.0.1:{visa}")];
    let mut server = Server::start_on(&scratch, &[&wires[0], &wires[1]], &["disk0=ram:8M"], &[]);
    let (client, names) = (Client::new(&scratch, "alice"), name_server(port, visa).to_string());
    let run = |arguments: &[&str]| client.run(&[arguments, &["--name-server", &names]].concat());

    let listed = run(&["ls", "hs+ip://storage.test"]);
    assert!(listed.code == Some(0) && listed.stdout.contains("disk0"), "{}{}", listed.stdout, listed.stderr);
    let told = run(&["info", "hs+ip://storage.test/disk0"]);
    assert!(told.code == Some(0) && told.stdout.contains("8 MiB"), "{}{}", told.stdout, told.stderr);
    for scheme in ["visa", "visa+tcp"] {
        let told = run(&["info", &format!("{scheme}://storage.test/disk0")]);
        assert!(told.code == Some(0) && told.stdout.contains("8 MiB"), "{scheme}: {}{}", told.stdout, told.stderr);
    }
    // A port that is named is meant: no record is asked for.
    let host = format!("hs+ip://here.test:{port}");
    let listed = run(&["ls", &host]);
    assert!(listed.code == Some(0) && listed.stdout.contains("disk0"), "{}{}", listed.stdout, listed.stderr);

    let none = run(&["ls", "hs+ip://empty.test"]);
    assert!(none.code != Some(0) && none.stderr.contains("has no such service"), "{}", none.stderr);
    let unknown = run(&["ls", "hs+ip://unknown.test"]);
    assert!(unknown.code != Some(0) && unknown.stderr.contains("unknown.test"), "{}", unknown.stderr);
    assert!(server.stop().success(), "{}", server.log());
}
