//! Questions to name servers (RFC 1035), over UDP and, for what does not fit there, TCP. What comes back is believed only when
//! it comes from whom was asked, under the number and for the name that were asked for.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use resolv_conf::ScopedIp;
use sanwire_io::interface;
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};

const DNS_PORT: u16 = 53;

/// How often each server is asked.
const ROUNDS: usize = 2;

/// Name servers that are asked (glibc's MAXNS).
const SERVERS_MAX: usize = 3;

/// The longest answer by UDP without extensions has 512 bytes; some servers send more all the same.
const DATAGRAM_MAX_BYTES: usize = 4096;

/// Records of one answer that are looked at.
const RECORDS_MAX: usize = 64;

/// Names that lead from the one that was asked for to the one with the records.
const ALIASES_MAX: usize = 8;

/// Who is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NameServers(Vec<SocketAddr>);

/// A place of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Srv {
    pub(super) priority: u16,
    pub(super) weight: u16,
    pub(super) port: u16,
    /// Its host; empty: there is none.
    pub(super) target: String,
}

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Record {
    Address(IpAddr),
    Srv(Srv),
}

impl Record {
    pub(super) fn into_address(self) -> Option<IpAddr> {
        match self {
            Record::Address(ip) => Some(ip),
            Record::Srv(_) => None,
        }
    }

    pub(super) fn into_srv(self) -> Option<Srv> {
        match self {
            Record::Srv(srv) => Some(srv),
            Record::Address(_) => None,
        }
    }

    fn new(data: &RData<'_>) -> Option<Record> {
        match data {
            RData::A(a) => Some(Record::Address(Ipv4Addr::from(a.address).into())),
            RData::AAAA(aaaa) => Some(Record::Address(Ipv6Addr::from(aaaa.address).into())),
            RData::SRV(srv) => Some(Record::Srv(Srv {
                priority: srv.priority,
                weight: srv.weight,
                port: srv.port,
                target: srv.target.to_string(),
            })),
            _ => None,
        }
    }
}

impl NameServers {
    pub(super) fn new(servers: &[SocketAddr]) -> Self {
        NameServers(servers.iter().take(SERVERS_MAX).copied().collect())
    }

    /// Those of a file like `/etc/resolv.conf`.
    ///
    /// # Errors
    /// The system's. Lines that are not understood are skipped.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let (config, _) = resolv_conf::Config::parse_with_errors(&std::fs::read(path)?);
        let servers: Vec<_> = config.get_nameservers_or_local().iter().map(socket_address).collect();
        Ok(NameServers::new(&servers))
    }

    /// The records of a name, after its aliases; none when the name or the records do not exist. Each server is asked in turn,
    /// and has so long for an answer, until one answers or the deadline has passed.
    ///
    /// # Errors
    /// Those of the last server.
    pub(super) fn ask(
        &self,
        name: &str,
        kind: TYPE,
        deadline: Instant,
        answer_timeout: Duration,
    ) -> io::Result<Vec<Record>> {
        let mut failure = io::Error::new(ErrorKind::TimedOut, "no name server has answered");
        for server in std::iter::repeat_n(&self.0, ROUNDS).flatten() {
            let until = deadline.min(Instant::now() + answer_timeout);
            match Query::new(name, kind)?.ask(*server, until) {
                Ok(records) => return Ok(records),
                Err(error) => failure = io::Error::new(error.kind(), format!("name server {server}: {error}")),
            }
        }
        Err(failure)
    }
}

fn socket_address(ip: &ScopedIp) -> SocketAddr {
    match ip {
        ScopedIp::V4(ip) => SocketAddr::new((*ip).into(), DNS_PORT),
        ScopedIp::V6(ip, scope) => {
            let index = |scope: &String| interface::by_name(scope).ok().map(|interface| interface.index);
            let scope = scope.as_ref().and_then(|scope| scope.parse().ok().or_else(|| index(scope)));
            SocketAddrV6::new(*ip, DNS_PORT, 0, scope.unwrap_or(0)).into()
        }
    }
}

/// One question, under a number of its own.
struct Query<'a> {
    number: u16,
    name: Name<'a>,
    kind: TYPE,
}

/// What one message says.
#[derive(PartialEq, Eq, Debug)]
enum Reply {
    Records(Vec<Record>),
    /// The whole of it takes TCP.
    Truncated,
    /// The server cannot tell.
    Failed,
    /// This is no answer to the question.
    Foreign,
}

impl<'a> Query<'a> {
    fn new(name: &'a str, kind: TYPE) -> io::Result<Self> {
        let name = Name::new(name).map_err(|_| io::Error::new(ErrorKind::InvalidInput, "this is no name for DNS"))?;
        let number = crate::random::bytes()?;
        Ok(Query { number: u16::from_be_bytes(number), name, kind })
    }

    /// Asks from a port of its own: who does not see the question has to guess that and the number.
    fn ask(&self, server: SocketAddr, until: Instant) -> io::Result<Vec<Record>> {
        let any: IpAddr = if server.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(server)?;
        socket.send(&self.write()?)?;
        let mut datagram = [0; DATAGRAM_MAX_BYTES];
        loop {
            socket.set_read_timeout(Some(time_left(until)?))?;
            let length = match socket.recv(&mut datagram) {
                Ok(length) => length,
                // The time is over, or a signal was caught: the deadline decides.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => continue,
                Err(error) => return Err(error),
            };
            match self.read(datagram.get(..length).unwrap_or_default()) {
                Reply::Records(records) => return Ok(records),
                Reply::Truncated => return self.ask_by_tcp(server, until),
                Reply::Failed => return Err(io::Error::other("it cannot tell")),
                Reply::Foreign => {}
            }
        }
    }

    /// RFC 1035 4.2.2: each message follows its length.
    fn ask_by_tcp(&self, server: SocketAddr, until: Instant) -> io::Result<Vec<Record>> {
        let mut stream = TcpStream::connect_timeout(&server, time_left(until)?)?;
        stream.set_write_timeout(Some(time_left(until)?))?;
        let question = self.write()?;
        let length = u16::try_from(question.len()).map_err(io::Error::other)?;
        stream.write_all(&[&length.to_be_bytes()[..], &question].concat())?;
        let mut length = [0; 2];
        read_exact(&mut stream, &mut length, until)?;
        let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
        read_exact(&mut stream, &mut message, until)?;
        match self.read(&message) {
            Reply::Records(records) => Ok(records),
            Reply::Truncated | Reply::Failed => Err(io::Error::other("it cannot tell")),
            Reply::Foreign => Err(io::Error::new(ErrorKind::InvalidData, "its answer is to another question")),
        }
    }

    fn write(&self) -> io::Result<Vec<u8>> {
        let mut packet = Packet::new_query(self.number);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        let (kind, class) = (QTYPE::TYPE(self.kind), QCLASS::CLASS(CLASS::IN));
        packet.questions.push(Question::new(self.name.clone(), kind, class, false));
        packet.build_bytes_vec().map_err(io::Error::other)
    }

    fn read(&self, message: &[u8]) -> Reply {
        let Ok(packet) = Packet::parse(message) else { return Reply::Foreign };
        let is_ours = |question: &Question<'_>| {
            question.qname == self.name
                && question.qtype == QTYPE::TYPE(self.kind)
                && question.qclass == QCLASS::CLASS(CLASS::IN)
        };
        let answers_us = packet.id() == self.number
            && packet.has_flags(PacketFlag::RESPONSE)
            && matches!(&packet.questions[..], [question] if is_ours(question));
        match packet.rcode() {
            _ if !answers_us => Reply::Foreign,
            RCODE::NoError if packet.has_flags(PacketFlag::TRUNCATION) => Reply::Truncated,
            RCODE::NoError => Reply::Records(self.records(&packet)),
            RCODE::NameError => Reply::Records(Vec::new()),
            _ => Reply::Failed,
        }
    }

    /// The records at the end of the aliases. What else stands in the message counts for nothing.
    fn records(&self, packet: &Packet<'_>) -> Vec<Record> {
        let mut name = &self.name;
        for _ in 0..=ALIASES_MAX {
            let of_name = || packet.answers.iter().filter(|answer| answer.class == CLASS::IN && answer.name == *name);
            let wanted = of_name().filter(|answer| answer.rdata.type_code() == self.kind);
            let found: Vec<_> = wanted.filter_map(|answer| Record::new(&answer.rdata)).take(RECORDS_MAX).collect();
            let alias = of_name().find_map(|answer| match &answer.rdata {
                RData::CNAME(alias) => Some(&alias.0),
                _ => None,
            });
            match alias {
                Some(alias) if found.is_empty() => name = alias,
                _ => return found,
            }
        }
        Vec::new()
    }
}

/// Not zero, which sockets take for no limit.
fn time_left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Fills the whole buffer, however slowly the bytes drip, or gives up at the deadline.
fn read_exact(stream: &mut TcpStream, mut buffer: &mut [u8], until: Instant) -> io::Result<()> {
    while !buffer.is_empty() {
        stream.set_read_timeout(Some(time_left(until)?))?;
        match stream.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => buffer = buffer.get_mut(read..).unwrap_or_default(),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
