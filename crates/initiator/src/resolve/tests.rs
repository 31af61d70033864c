//! A name server of this process, honest or not.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use simple_dns::rdata::{A, AAAA, CNAME, RData, SRV};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord};

use super::*;
use crate::session::table::HYPERSCSI;

const DOMAIN: &str = "storage.example";

/// Answers by a function of the question, in as many datagrams as that gives; over TCP with the first of them.
struct FakeServer {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

type Answers = fn(&Packet<'_>, Transport) -> Vec<Vec<u8>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Udp,
    Tcp,
}

impl FakeServer {
    fn start(answers: Answers) -> Self {
        let (listener, socket) = ports();
        let address = listener.local_addr().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let (udp_over, tcp_over) = (Arc::clone(&is_over), Arc::clone(&is_over));
        let udp = thread::spawn(move || {
            let mut question = [0; 1024];
            while let Ok((length, from)) = socket.recv_from(&mut question) {
                if udp_over.load(Ordering::Acquire) {
                    return;
                }
                for answer in answers(&Packet::parse(&question[..length]).unwrap(), Transport::Udp) {
                    socket.send_to(&answer, from).unwrap();
                }
            }
        });
        let tcp = thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                if tcp_over.load(Ordering::Acquire) {
                    return;
                }
                serve_tcp(&mut stream, answers);
            }
        });
        FakeServer { address, is_over, threads: vec![udp, tcp] }
    }

    fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<String>> {
        let found = patiently(host, port, &[self.address])?;
        Ok(found.iter().map(ToString::to_string).collect())
    }
}

/// The threads of the servers here may be halted for some seconds.
fn patiently(host: &str, port: u16, name_servers: &[SocketAddr]) -> io::Result<Vec<SocketAddr>> {
    let answer_timeout = Duration::from_secs(60);
    let resolver = Resolver { name_servers, deadline: Instant::now() + 2 * answer_timeout, answer_timeout };
    resolver.addresses_of_service(host, port, HYPERSCSI)
}

/// One port of either kind, by the same number.
fn ports() -> (TcpListener, UdpSocket) {
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        // The UDP port of this number may be somebody else's.
        if let Ok(socket) = UdpSocket::bind(listener.local_addr().unwrap()) {
            return (listener, socket);
        }
    }
}

fn serve_tcp(stream: &mut std::net::TcpStream, answers: Answers) {
    use std::io::{Read, Write};
    let mut length = [0; 2];
    stream.read_exact(&mut length).unwrap();
    let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut question).unwrap();
    for answer in answers(&Packet::parse(&question).unwrap(), Transport::Tcp).into_iter().take(1) {
        // Who asked may have had enough of a long answer.
        let _ = stream.write_all(&u16::try_from(answer.len()).unwrap().to_be_bytes());
        let _ = stream.write_all(&answer);
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.send_to(&[0], self.address).unwrap();
        drop(std::net::TcpStream::connect(self.address));
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

fn a(last: u8) -> RData<'static> {
    RData::A(A { address: Ipv4Addr::new(192, 0, 2, last).into() })
}

fn srv(priority: u16, weight: u16, port: u16, target: &'static str) -> RData<'static> {
    RData::SRV(SRV { priority, weight, port, target: Name::new_unchecked(target) })
}

fn record(name: &'static str, data: RData<'static>) -> ResourceRecord<'static> {
    ResourceRecord::new(Name::new_unchecked(name), CLASS::IN, 60, data)
}

/// The answer of an honest server that has these records.
fn reply<'a>(question: &Packet<'a>, records: Vec<ResourceRecord<'a>>) -> Packet<'a> {
    let mut packet = Packet::new_reply(question.id());
    packet.questions.clone_from(&question.questions);
    packet.answers = records;
    packet
}

/// What the question asks for, of a zone.
fn of_zone<'a>(question: &Packet<'a>, zone: Vec<ResourceRecord<'a>>) -> Vec<Vec<u8>> {
    let asked = &question.questions[0];
    let fits = |record: &ResourceRecord<'_>| {
        record.name == asked.qname && (record.match_qtype(asked.qtype) || matches!(record.rdata, RData::CNAME(_)))
    };
    let records = zone.into_iter().filter(fits).collect();
    vec![reply(question, records).build_bytes_vec_compressed().unwrap()]
}

fn is_about_srv(question: &Packet<'_>) -> bool {
    question.questions[0].qtype == QTYPE::TYPE(TYPE::SRV)
}

#[test]
fn a_name_with_several_addresses_gives_all_of_them_ipv4_first() {
    let server = FakeServer::start(|question, _| {
        let six = RData::AAAA(AAAA { address: 1 });
        of_zone(question, vec![record(DOMAIN, six), record(DOMAIN, a(1)), record(DOMAIN, a(2))])
    });
    let found = server.addresses(DOMAIN, 5674).unwrap();
    assert_eq!(found, ["192.0.2.1:5674", "192.0.2.2:5674", "[::1]:5674"], "without SRV records the name itself counts");
    assert_eq!(server.addresses("192.0.2.9", 5674).unwrap(), ["192.0.2.9:5674"], "an address is not asked for");
}

#[test]
fn srv_records_name_hosts_and_ports_by_priority_unless_the_url_names_a_port() {
    let server = FakeServer::start(|question, _| {
        let service = "_hyperscsi._udp.storage.example";
        let zone = vec![
            record(service, srv(20, 0, 7002, "two.example")),
            record(service, srv(10, 5, 7001, "one.example")),
            record("ONE.example", a(1)),
            record("one.example", a(11)),
            record("two.example", a(2)),
            record(DOMAIN, a(3)),
        ];
        of_zone(question, zone)
    });
    let found = server.addresses(DOMAIN, 5674).unwrap();
    assert_eq!(found, ["192.0.2.1:7001", "192.0.2.11:7001", "192.0.2.2:7002"]);
    assert_eq!(server.addresses(DOMAIN, 9999).unwrap(), ["192.0.2.3:9999"]);
}

#[test]
fn a_domain_can_say_that_it_has_no_such_service() {
    let server = FakeServer::start(|question, _| {
        let none = record("_hyperscsi._udp.storage.example", srv(0, 0, 0, "."));
        of_zone(question, vec![none, record(DOMAIN, a(3))])
    });
    let error = server.addresses(DOMAIN, 5674).unwrap_err();
    assert_eq!(error.to_string(), "its SRV record says that it has no such service");
}

#[test]
fn a_place_that_has_no_address_does_not_hide_the_next() {
    let server = FakeServer::start(|question, _| {
        let service = "_hyperscsi._udp.storage.example";
        let places = [srv(1, 0, 7001, "gone.example"), srv(2, 0, 7002, "here.example")];
        let mut zone: Vec<_> = places.into_iter().map(|place| record(service, place)).collect();
        zone.push(record("here.example", a(2)));
        of_zone(question, zone)
    });
    assert_eq!(server.addresses(DOMAIN, 5674).unwrap(), ["192.0.2.2:7002"]);
}

#[test]
fn aliases_are_followed_and_a_ring_of_them_is_left() {
    let server = FakeServer::start(|question, _| {
        let alias = |name| RData::CNAME(CNAME(Name::new_unchecked(name)));
        let zone = [
            (DOMAIN, alias("real.example")),
            ("real.example", a(1)),
            ("x.ring", alias("y.ring")),
            ("y.ring", alias("x.ring")),
        ];
        let records = zone.into_iter().map(|(name, data)| record(name, data)).collect();
        vec![reply(question, records).build_bytes_vec().unwrap()]
    });
    assert_eq!(server.addresses(DOMAIN, 5674).unwrap(), ["192.0.2.1:5674"]);
    let error = server.addresses("x.ring", 5674).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
}

#[test]
fn answers_under_other_numbers_or_to_other_questions_are_not_believed() {
    let server = FakeServer::start(|question, _| {
        let records = vec![record(DOMAIN, a(66)), record("evil.example", a(66))];
        let mut other_number = reply(question, records.clone());
        other_number.set_id(question.id() ^ 1);
        let mut other_name = reply(question, records.clone());
        other_name.questions[0].qname = Name::new_unchecked("evil.example");
        let mut no_question = reply(question, records.clone());
        no_question.questions.clear();
        let mut no_reply = reply(question, records);
        no_reply.remove_flags(PacketFlag::RESPONSE);
        let lies = [other_number, other_name, no_question, no_reply];
        let mut datagrams: Vec<_> = lies.iter().map(|packet| packet.build_bytes_vec().unwrap()).collect();
        datagrams.extend([vec![], vec![0xff; 7], vec![0xc0; 600]]);
        datagrams.append(&mut of_zone(question, vec![record(DOMAIN, a(1)), record("evil.example", a(66))]));
        datagrams
    });
    assert_eq!(server.addresses(DOMAIN, 5674).unwrap(), ["192.0.2.1:5674"]);
}

#[test]
fn names_that_point_at_themselves_end_and_do_no_harm() {
    let server = FakeServer::start(|question, _| {
        let mut honest = of_zone(question, vec![record(DOMAIN, a(1))]);
        let mut looped = honest[0].clone();
        // The owner of the answer becomes a pointer to its own place (RFC 1035 4.1.4).
        let question_end = 12 + question.questions[0].qname.to_string().len() + 2 + 4;
        if let Some(pointer) = looped.get_mut(question_end..question_end + 2) {
            pointer.copy_from_slice(&(0xc000 | question_end as u16).to_be_bytes());
        }
        honest.insert(0, looped);
        honest
    });
    assert_eq!(server.addresses(DOMAIN, 9999).unwrap(), ["192.0.2.1:9999"]);
}

#[test]
fn what_is_truncated_is_asked_for_by_tcp() {
    let server = FakeServer::start(|question, transport| {
        let mut packet = reply(question, vec![]);
        if transport == Transport::Udp {
            packet.set_flags(PacketFlag::TRUNCATION);
        } else if question.questions[0].qtype == QTYPE::TYPE(TYPE::A) {
            packet.answers = vec![record(DOMAIN, a(1))];
        }
        vec![packet.build_bytes_vec().unwrap()]
    });
    assert_eq!(server.addresses(DOMAIN, 9999).unwrap(), ["192.0.2.1:9999"]);
}

#[test]
fn ten_thousand_records_are_looked_at_up_to_a_limit() {
    let server = FakeServer::start(|question, transport| {
        let mut packet = reply(question, vec![]);
        if transport == Transport::Udp {
            packet.set_flags(PacketFlag::TRUNCATION);
            return vec![packet.build_bytes_vec().unwrap()];
        }
        // As many as one message holds: 16 bytes each, with the name compressed.
        let count = if question.questions[0].qtype == QTYPE::TYPE(TYPE::A) { 4000 } else { 0 };
        packet.answers = (0..count).map(|number: u32| record(DOMAIN, RData::A(A { address: number }))).collect();
        let mut message = packet.build_bytes_vec_compressed().unwrap();
        // And it says that it has more.
        message[6..8].copy_from_slice(&(if count > 0 { 10_000u16 } else { 0 }).to_be_bytes());
        vec![message, packet.build_bytes_vec_compressed().unwrap()]
    });
    assert!(server.addresses(DOMAIN, 9999).is_err(), "a message that ends too early is none");

    let server = FakeServer::start(|question, _| {
        let places =
            (0..60).map(|place| record("_hyperscsi._udp.storage.example", srv(place, 0, 7000 + place, "a.example")));
        let hosts = (0..60).map(|number: u32| record("a.example", RData::A(A { address: number })));
        of_zone(question, places.chain(hosts).collect())
    });
    let found = server.addresses(DOMAIN, 5674).unwrap();
    assert_eq!((found.len(), &*found[0]), (ADDRESSES_MAX, "0.0.0.0:7000"));
}

#[test]
fn a_server_that_cannot_tell_is_followed_by_the_next() {
    let refusing = FakeServer::start(|question, _| {
        let mut packet = reply(question, vec![]);
        *packet.rcode_mut() = if is_about_srv(question) { RCODE::NameError } else { RCODE::ServerFailure };
        vec![packet.build_bytes_vec().unwrap()]
    });
    let error = refusing.addresses(DOMAIN, 5674).unwrap_err();
    assert_eq!(error.to_string(), format!("name server {}: it cannot tell", refusing.address));
    let honest = FakeServer::start(|question, _| of_zone(question, vec![record(DOMAIN, a(1))]));
    let found = patiently(DOMAIN, 5674, &[refusing.address, honest.address]).unwrap();
    assert_eq!(found, ["192.0.2.1:5674".parse().unwrap()]);
}

#[test]
fn places_of_one_priority_are_drawn_by_weight() {
    let place = |priority, weight, target: &str| Srv { priority, weight, port: 1, target: target.into() };
    let records = vec![place(2, 0, "last"), place(1, 60, "heavy"), place(1, 0, "none"), place(1, 20, "light")];
    let mut state = 1u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    let mut firsts = std::collections::BTreeMap::<String, u32>::new();
    for _ in 0..8000 {
        let ordered = in_order(records.clone(), &mut random);
        assert_eq!((ordered.len(), &*ordered[3].target), (4, "last"));
        *firsts.entry(ordered[0].target.clone()).or_default() += 1;
    }
    // 60, 20 and one draw of 81.
    assert!((5700..6150).contains(&firsts["heavy"]), "{firsts:?}");
    assert!((1800..2150).contains(&firsts["light"]), "{firsts:?}");
    assert!((50..200).contains(&firsts["none"]), "{firsts:?}");
}
