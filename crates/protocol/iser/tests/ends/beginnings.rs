//! Initiators whose adapters begin with a message of no bytes, which says that the target may begin (RFC 6581 9), and then log in.

use sanwire_core::Instant;
use sanwire_iser::wire::HeaderForm;
use sanwire_iwarp::wire::Startup;
use sanwire_iwarp::{Config, Connection, Memory, Registration, Rtr};

use super::host::Host;
use super::raw::{ID, Line, NORMAL, Raw, message_as, of_blocks, opened, window};
use super::world::MEMORY_BYTES;

const NONE: Rtr = Rtr { send: false, write: false, read: false };
const READ: Rtr = Rtr { read: true, ..NONE };
const WRITE: Rtr = Rtr { write: true, ..NONE };
const SEND: Rtr = Rtr { send: true, ..NONE };

/// Logs in, at once behind the first message or when everything is quiet; what the target has chosen of what was offered, and its IRD.
fn begin(offered: Rtr, is_at_once: bool) -> (Raw, Rtr, u16) {
    let (mut host, now) = (Host::new(), Instant::from_nanos(1));
    // As cxgb4: its own reads are none but that one.
    let config = Config { peer_to_peer: true, rtr: offered, ird: 8, ord: 1, seed: [3; 16], ..Config::default() };
    let mut rdma = Connection::initiator(config, &NORMAL.write()).unwrap();
    (0..20).for_each(|_| rdma.post_receive(vec![0; 9000].into()).unwrap());
    host.open(ID, true, now);
    let request = rdma.poll_transmit().expect("a request").to_vec();
    host.feed(ID, &request, now);
    let reply: Vec<u8> = host.output.get_mut(&ID).expect("a reply").drain(..).collect();
    let (answer, length) = Startup::read(&reply, true).expect("a reply").expect("all of it");
    assert_eq!(length, reply.len(), "nothing follows before the initiator has said that it may");
    rdma.take(&reply);
    let mut line = Line { id: ID, form: HeaderForm::Rfc7145, rdma, told: Vec::new(), said: Vec::new() };
    if !is_at_once {
        line.pass(&mut host, now);
        assert_eq!(line.rdma.reads_under_way(), 0, "a read of no bytes is answered before anybody has logged in");
    }
    line.log_in(0, "InitialR2T=Yes", &mut host, now);
    let enhanced = answer.enhanced.expect("revision 2");
    assert!(enhanced.is_peer_to_peer);
    (Raw { host, line, now }, enhanced.rtr, enhanced.ird)
}

/// cxgb4 reads no bytes, for which a target takes one read at a time (IRD 1); others have other ways.
#[test]
fn an_initiator_that_says_that_the_target_may_begin_logs_in_and_its_data_passes() {
    for (offered, chosen) in [(READ, READ), (WRITE, WRITE), (SEND, SEND), (Rtr::ALL, WRITE)] {
        for is_at_once in [true, false] {
            let (mut raw, rtr, ird) = begin(offered, is_at_once);
            assert_eq!((rtr, ird), (chosen, 1), "{offered:?}");
            let stag =
                raw.line.rdma.register(Registration::of_slices(vec![7; 8192].into()).with_invalidation()).unwrap();
            raw.write(1, window(stag));
            assert_eq!(raw.answers().len(), 1);
            assert!(raw.host.disk[..8192] == [7; 8192], "{offered:?}");
            let frame = Registration::of_frame(vec![0; 8192].into()).with_invalidation();
            let stag = raw.line.rdma.register(frame).unwrap();
            let control = opened(Some(window(stag)), None);
            raw.say(message_as(HeaderForm::Rfc7145, control, of_blocks(2, 16, true).write(), &[]));
            assert_eq!(raw.answers().len(), 1);
            let Some(Memory::Frame(frame)) = raw.line.rdma.deregister(stag) else { panic!("a frame") };
            assert!(frame[..] == [7; 8192], "{offered:?}");
            assert!(raw.host.closed.is_empty() && raw.host.memory.free_bytes() == MEMORY_BYTES, "{offered:?}");
        }
    }
}
