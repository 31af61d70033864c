//! How many RDMA Reads are under way at a time: as many as the initiator takes, as it says itself when it connects (RFC 6581) or by Hello
//! (RFC 7145 9.3). More than it takes end the connection.

use sanwire_core::Instant;
use sanwire_iser::wire::{HeaderForm, IserHeader};
use sanwire_iwarp::wire::{Opcode, fpdu_bytes};
use sanwire_iwarp::{Config, Connection, Event, Registration};

use super::host::Host;
use super::raw::{ID, Line, NORMAL, Raw, message_as, of_blocks, opened, window};
use super::world::MEMORY_BYTES;

/// Gives four WRITEs of these numbers at once. Tells how many RDMA Reads they bring before one is answered, and answers them then.
fn reads_at_a_time(raw: &mut Raw, numbers: std::ops::Range<u32>) -> usize {
    let count = numbers.len();
    for number in numbers {
        let stag = raw
            .line
            .rdma
            .register(Registration::of_slices(vec![number as u8; 8192].into()).with_invalidation())
            .unwrap();
        let control = opened(None, Some(window(stag)));
        raw.line.order(message_as(HeaderForm::Rfc7145, control, of_blocks(number, 16, false).write(), &[]));
    }
    raw.line.send(&mut raw.host, raw.now);
    let asked = operations(raw).iter().filter(|opcode| **opcode == Opcode::ReadRequest as u8).count();
    raw.pass();
    assert_eq!(raw.answers().len(), count, "all of them are answered");
    asked
}

/// What the target has sent that did not arrive.
fn operations(raw: &Raw) -> Vec<u8> {
    let sent: Vec<u8> = raw.host.output[&ID].iter().copied().collect();
    let (mut rest, mut all) = (&sent[..], Vec::new());
    while let [high, low, _, second, ..] = rest {
        all.push(second & 0xf);
        rest = &rest[fpdu_bytes(usize::from(u16::from_be_bytes([*high, *low])))..];
    }
    all
}

fn hello(raw: &mut Raw, ird: u16) -> Option<IserHeader> {
    raw.say(IserHeader::Hello { versions: (10, 10), ird }.write().to_vec());
    raw.answers().pop().and_then(|reply| IserHeader::read(reply.first_chunk()?))
}

#[test]
fn no_more_reads_are_under_way_than_an_initiator_says_that_it_takes() {
    for (revision, ird, before, said, after) in [
        (2, 128, 4, 3, 3),
        (2, 128, 4, 1000, 4),
        (2, 2, 2, 1, 1),
        (2, 2, 2, 100, 2),
        (1, 128, 1, 3, 3),
        (1, 1, 1, 1, 1),
    ] {
        let config = Config { revision, ird, ..Config::default() };
        let mut raw = Raw::logged_in_as(HeaderForm::Rfc7145, config, "InitialR2T=Yes");
        assert_eq!(reads_at_a_time(&mut raw, 1..5), before, "revision {revision}, IRD {ird}");
        let ord = said.min(if revision == 1 { 128 } else { ird });
        let reply = IserHeader::HelloReply { is_rejected: false, versions: (10, 10), ord };
        assert_eq!(hello(&mut raw, said), Some(reply));
        assert_eq!(reads_at_a_time(&mut raw, 5..9), after, "revision {revision}, IRD {ird}, Hello {said}");
        assert_eq!(raw.host.memory.free_bytes(), MEMORY_BYTES);
    }
}

/// By RDMA the data of a WRITE is read: who takes no reads would wait for every one in vain.
#[test]
fn an_initiator_that_takes_no_reads_is_refused_with_the_reason() {
    let (mut host, now) = (Host::new(), Instant::from_nanos(1));
    let config = Config { ird: 0, ..Config::default() };
    let line = Line::open(ID, HeaderForm::Rfc7145, config, &mut host, now);
    let [reason] = &host.refusals[..] else { panic!("{:?}", host.refusals) };
    assert!(reason.contains("its IRD is 0") && !reason.contains("plain iSCSI"), "{reason}");
    assert!(line.told.iter().any(|event| matches!(event, Event::Rejected(_))), "it is told: {:?}", line.told);
    let mut raw = Raw::logged_in();
    assert_eq!(hello(&mut raw, 0), None);
    assert!(raw.host.closed.contains(&ID));
}

/// IRD lies: it says that it takes 128 reads, and ends the stream at the second one.
#[test]
fn who_takes_fewer_reads_than_it_says_loses_its_connection_and_nobody_else_anything() {
    let (mut host, now) = (Host::new(), Instant::from_nanos(1));
    let config = Config { ird: 1, seed: [3; 16], ..Config::default() };
    let mut rdma = Connection::initiator(config, &NORMAL.write()).unwrap();
    (0..20).for_each(|_| rdma.post_receive(vec![0; 9000].into()).unwrap());
    host.open(ID, true, now);
    let mut request = rdma.poll_transmit().expect("a request").to_vec();
    request[20..22].copy_from_slice(&128_u16.to_be_bytes());
    host.feed(ID, &request, now);
    let mut reply: Vec<u8> = host.output.get_mut(&ID).unwrap().drain(..).collect();
    assert_eq!(reply[22..24], 128_u16.to_be_bytes(), "the target's ORD");
    reply[22..24].copy_from_slice(&1_u16.to_be_bytes());
    rdma.take(&reply);
    let mut line = Line { id: ID, form: HeaderForm::Rfc7145, rdma, told: Vec::new(), said: Vec::new() };
    line.log_in(0, "InitialR2T=Yes", &mut host, now);
    for number in 1..5 {
        let stag = line.rdma.register(Registration::of_slices(vec![7; 8192].into())).unwrap();
        let control = opened(None, Some(window(stag)));
        line.order(message_as(HeaderForm::Rfc7145, control, of_blocks(number, 16, false).write(), &[]));
    }
    line.pass(&mut host, now);
    assert!(host.closed.contains(&ID), "{:?}", line.told);
    host.lose(ID, now);
    assert_eq!(host.memory.free_bytes(), MEMORY_BYTES);
}
