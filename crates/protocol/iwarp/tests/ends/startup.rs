//! How streams begin: revisions, markers, CRCs, IRD and ORD, peer-to-peer, and frames with everything wrong.

use sanwire_iwarp::wire::{DEPTH_ANY, Enhanced, Opcode, Startup, TAGGED_BYTES, UNTAGGED_BYTES, fpdu_bytes};
use sanwire_iwarp::{Closed, Config, ConfigError, Connection, Ended, Fault, Rtr};

use crate::world::{End, World, bytes};

const WRITE: Rtr = Rtr { send: false, write: true, read: false };
const READ: Rtr = Rtr { send: false, write: false, read: true };
const SEND: Rtr = Rtr { send: true, write: false, read: false };

fn request() -> Startup {
    Startup {
        is_reply: false,
        markers: false,
        crc: false,
        is_rejected: false,
        revision: 2,
        enhanced: Some(Enhanced { is_peer_to_peer: false, rtr: Rtr::default(), ird: 128, ord: 1 }),
        private_data: vec![0x80, 0, 0, 0],
    }
}

fn responder(config: Config) -> End {
    End::new(Connection::responder(config).unwrap())
}

/// What a responder answers to this request, if it is accepted.
fn answered(request: &Startup, config: Config) -> (End, Startup) {
    let mut end = responder(config);
    end.connection.take(&request.write());
    end.drain();
    if end.told.request.is_some() {
        end.connection.accept(b"yes").unwrap();
    }
    end.drain();
    let sent: Vec<u8> = end.on_the_way.drain(..).collect();
    let (reply, length) = Startup::read(&sent, true).unwrap().expect("a whole reply");
    assert_eq!(length, sent.len(), "nothing behind a reply");
    (end, reply)
}

/// An initiator that has got this reply.
fn told(config: Config, reply: &Startup) -> End {
    let mut end = End::new(Connection::initiator(config, b"hello").unwrap());
    end.drain();
    end.on_the_way.clear();
    end.connection.take(&reply.write());
    end.drain();
    end
}

/// RFC 5044 7.1.2: one C is enough. RFC 6581 5: both depths are lowered to what the other has.
#[test]
fn a_reply_takes_what_both_can() {
    let config = Config { crc: false, ird: 16, ord: 64, ..Config::default() };
    for (crc_wanted, crc_offered) in [(false, false), (true, false), (false, true), (true, true)] {
        let request = Startup { crc: crc_wanted, ..request() };
        let (end, reply) = answered(&request, Config { crc: crc_offered, ..config.clone() });
        let enhanced = reply.enhanced.unwrap();
        assert_eq!((reply.crc, reply.revision, reply.markers), (crc_wanted || crc_offered, 2, false));
        assert_eq!((enhanced.ird, enhanced.ord, reply.private_data), (1, 64, b"yes".to_vec()));
        let terms = end.told.terms.unwrap();
        assert_eq!((terms.ird, terms.ord, terms.crc), (1, 64, crc_wanted || crc_offered));
    }
    let open = Enhanced { ird: DEPTH_ANY, ord: DEPTH_ANY, ..request().enhanced.unwrap() };
    let (end, reply) = answered(&Startup { enhanced: Some(open), ..request() }, config);
    let request = end.told.request.unwrap();
    assert_eq!((request.ird, request.ord), (None, None));
    assert_eq!((reply.enhanced.unwrap().ird, reply.enhanced.unwrap().ord), (16, 64));
}

#[test]
fn revision_1_has_no_negotiation_of_depths() {
    let wanted = Startup { revision: 1, enhanced: None, ..request() };
    let (end, reply) = answered(&wanted, Config::default());
    assert_eq!((reply.revision, reply.enhanced, end.told.terms.unwrap().ord), (1, None, 128));
    let world = World::connected(Config { revision: 1, ..Config::default() }, Config::default());
    assert_eq!(world.initiator.told.terms.unwrap().revision, 1);
    assert_eq!(world.responder.told.request.unwrap().ord, None);
}

/// Such a peer is asked for revision 1 on another stream, whether it has accepted or refused.
#[test]
fn a_reply_of_revision_1_to_a_request_of_revision_2_tells_what_to_ask_for() {
    let reply = |revision, is_rejected| {
        let enhanced = request().enhanced.filter(|_| revision > 1);
        Startup { is_reply: true, revision, enhanced, is_rejected, ..request() }
    };
    let ones = Config { revision: 1, ..Config::default() };
    for (asked, answered, is_rejected, is_older) in [
        (Config::default(), 1, false, true),
        (Config::default(), 1, true, true),
        (Config::default(), 0, true, false),
        (Config::default(), 2, false, false),
        (Config::default(), 2, true, false),
        (Config::default(), 3, true, false),
        (ones.clone(), 1, false, false),
        (ones.clone(), 1, true, false),
        (ones, 2, false, false),
    ] {
        let end = told(asked.clone(), &reply(answered, is_rejected));
        assert_eq!(end.connection.is_peer_older(), is_older, "{} {answered} {is_rejected}", asked.revision);
        let is_agreed = !is_rejected && asked.revision == answered;
        assert_eq!(end.told.terms.is_some(), is_agreed, "{} {answered} {is_rejected}", asked.revision);
        assert_eq!(end.connection.is_closed(), !is_agreed);
    }
}

#[test]
fn markers_and_revisions_that_are_not_spoken_are_refused_with_a_reply() {
    let refused = [
        Startup { markers: true, ..request() },
        Startup { revision: 0, enhanced: None, ..request() },
        Startup { revision: 3, ..request() },
    ];
    for wanted in refused {
        let (end, reply) = answered(&wanted, Config::default());
        assert!(reply.is_rejected && end.told.request.is_none());
        assert_eq!((end.told.closed, end.connection.is_closed()), (Some(Closed::Refused), true));
    }
}

#[test]
fn a_rejection_reaches_the_initiator_with_what_it_says() {
    let mut world = World::new(Config::default(), Config::default());
    world.run();
    world.responder.connection.reject(b"no such target").unwrap();
    world.run();
    assert_eq!(world.initiator.told.rejected.as_deref(), Some(&b"no such target"[..]));
    for end in [&world.initiator, &world.responder] {
        assert_eq!((end.told.closed, &end.told.terms, end.told.terminated), (Some(Closed::Refused), &None, None));
    }
    assert_eq!(world.responder.connection.accept(b""), Err(ConfigError::NoRequest));
}

#[test]
fn private_data_of_512_bytes_arrives_and_longer_is_not_sent() {
    let longest = bytes(1, 512);
    let config = Config { revision: 1, ..Config::default() };
    let mut end = responder(Config::default());
    let mut initiator = End::new(Connection::initiator(config.clone(), &longest).unwrap());
    initiator.drain();
    let mut sent = std::mem::take(&mut initiator.on_the_way);
    while end.receive(&mut sent, 7) > 0 {}
    end.drain();
    assert_eq!(end.told.request.as_ref().unwrap().private_data, longest);
    end.connection.accept(&longest).unwrap();
    end.drain();
    initiator.receive(&mut end.on_the_way, usize::MAX);
    initiator.drain();
    assert_eq!(initiator.told.terms.unwrap().private_data, longest);
    let refused = |config, length| Connection::initiator(config, &bytes(1, length)).err();
    assert_eq!(refused(config, 513), Some(ConfigError::PrivateData { given: 513, most: 512 }));
    assert_eq!(refused(Config::default(), 509), Some(ConfigError::PrivateData { given: 509, most: 508 }));
    assert_eq!(refused(Config::default(), 508), None);
}

/// RFC 6581 9: each kind of RTR, until which the responder holds back what it has to send.
#[test]
fn a_responder_of_a_peer_to_peer_connection_begins_when_the_initiator_says_so() {
    for (rtr, length) in [(WRITE, TAGGED_BYTES), (READ, UNTAGGED_BYTES + 28), (SEND, UNTAGGED_BYTES)] {
        let initiator = Config { peer_to_peer: true, rtr, ..Config::default() };
        let mut world = World::connected(initiator, Config::default());
        let first = world.sent.iter().filter(|(is_initiator, _)| *is_initiator).nth(1).unwrap();
        assert_eq!(first.1.len(), fpdu_bytes(length), "{rtr:?}");
        assert!(world.responder.told.terms.as_ref().unwrap().is_peer_to_peer);
        assert!(world.responder.told.messages.is_empty() && world.responder.connection.receives_posted() == 8);
        world.responder.send(b"the responder speaks first");
        world.run();
        assert_eq!(world.initiator.message().unwrap(), b"the responder speaks first");
        world.initiator.send(b"and is answered");
        world.run();
        assert_eq!(world.responder.message().unwrap(), b"and is answered");
        // Only the first message of no bytes is none.
        world.initiator.send(b"");
        world.run();
        assert_eq!((world.responder.message().unwrap(), world.responder.connection.receives_posted()), (Vec::new(), 6));
        assert_eq!(world.initiator.connection.reads_under_way(), 0);
    }
}

#[test]
fn a_responder_sends_nothing_before_the_first_fpdu_of_the_initiator() {
    let mut world = World::plain();
    world.responder.send(b"early");
    world.run();
    assert!(world.initiator.told.messages.is_empty() && world.responder.connection.has_transmit());
    world.initiator.send(b"login");
    world.run();
    assert_eq!(world.initiator.message().unwrap(), b"early");

    let mut world = World::plain();
    world.responder.send(b"never");
    world.responder.connection.disconnect();
    world.run();
    assert_eq!(world.responder.told.closed, Some(Closed::ByUs));
}

/// What is no word that the responder may begin is one too, and is heard.
#[test]
fn a_first_message_that_says_more_than_that_the_responder_may_begin_is_a_message() {
    let enhanced = Enhanced { is_peer_to_peer: true, rtr: SEND, ..request().enhanced.unwrap() };
    let (mut end, _) = answered(&Startup { enhanced: Some(enhanced), crc: true, ..request() }, Config::default());
    end.post(2, 10);
    for (sequence, text) in [(1, &b"hello"[..]), (2, &b""[..])] {
        let segment = crate::hostile::untagged(Opcode::Send, sequence, 0);
        end.connection.take(&crate::hostile::fpdu(&crate::hostile::ulpdu(segment, text)));
        end.drain();
        assert_eq!(end.message().unwrap(), text);
    }
}

#[test]
fn an_fpdu_without_a_segment_says_that_the_responder_may_begin_once_and_only_where_agreed() {
    let enhanced = Enhanced { is_peer_to_peer: true, rtr: SEND, ..request().enhanced.unwrap() };
    let (mut end, reply) = answered(&Startup { enhanced: Some(enhanced), crc: true, ..request() }, Config::default());
    assert_eq!(reply.enhanced.unwrap().rtr, SEND);
    end.connection.take(&crate::hostile::fpdu(&[]));
    end.send(b"begun");
    end.drain();
    assert!(!end.on_the_way.is_empty());
    end.connection.take(&crate::hostile::fpdu(&[]));
    end.drain();
    assert_eq!(end.told.terminated, Some(Ended::ByUs(Fault::Length)));
}

#[test]
fn a_responder_chooses_one_way_to_begin_of_those_that_both_know() {
    let choice = |theirs: Rtr, ours: Rtr| {
        let enhanced = Enhanced { is_peer_to_peer: true, rtr: theirs, ..request().enhanced.unwrap() };
        let wanted = Startup { enhanced: Some(enhanced), ..request() };
        let (end, reply) = answered(&wanted, Config { rtr: ours, ird: 0, ..Config::default() });
        let ird = reply.enhanced.unwrap().ird;
        assert_eq!(ird, end.told.terms.unwrap().ird);
        (reply.enhanced.unwrap().rtr, ird)
    };
    assert_eq!(choice(Rtr::ALL, Rtr::ALL), (WRITE, 0));
    assert_eq!(choice(READ, Rtr::ALL), (READ, 1), "a read must be taken");
    assert_eq!(choice(Rtr { write: false, ..Rtr::ALL }, Rtr::ALL), (READ, 1));
    assert_eq!(choice(SEND, READ), (READ, 1), "none in common: what this end takes");
}

/// RFC 6581 10: an initiator that cannot agree says why.
#[test]
fn an_initiator_that_cannot_agree_says_why() {
    let reply = Startup { is_reply: true, crc: true, ..request() };
    let with = |change: fn(&mut Enhanced)| {
        let mut enhanced = Enhanced { is_peer_to_peer: true, rtr: WRITE, ird: 5, ord: 5 };
        change(&mut enhanced);
        Startup { enhanced: Some(enhanced), ..reply.clone() }
    };
    let config = Config { peer_to_peer: true, rtr: WRITE, ird: 5, ..Config::default() };
    let fault = |reply: &Startup| {
        let mut end = told(config.clone(), reply);
        assert_eq!((end.told.closed, &end.told.terms), (Some(Closed::Terminated), &None));
        (end.told.terminated, end.on_the_way.drain(..).skip(3).take(20).collect::<Vec<_>>())
    };
    let terminate = |code: u8| {
        let mut bytes = vec![0x40 | Opcode::Terminate as u8, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0];
        bytes.extend_from_slice(&[0x20, code, 0]);
        bytes
    };
    let insufficient = (Some(Ended::ByUs(Fault::Ird)), terminate(6));
    let no_way = (Some(Ended::ByUs(Fault::Rtr)), terminate(7));
    assert_eq!(fault(&with(|enhanced| enhanced.ord = 6)), insufficient);
    assert_eq!(fault(&with(|enhanced| enhanced.rtr = READ)), no_way);
    assert_eq!(fault(&with(|enhanced| enhanced.is_peer_to_peer = false)), no_way);
    let terms = told(config.clone(), &with(|enhanced| enhanced.ird = 3)).told.terms.unwrap();
    assert_eq!((terms.ord, terms.ird), (3, 5));
}

#[test]
fn a_reply_with_everything_wrong_ends_the_stream_without_a_word() {
    let good = Startup { is_reply: true, ..request() };
    let whole = good.write();
    let mut wrong = vec![
        Startup { markers: true, ..good.clone() }.write(),
        Startup { revision: 1, enhanced: None, ..good.clone() }.write(),
        Startup { revision: 3, ..good.clone() }.write(),
        Startup { enhanced: None, ..good.clone() }.write(),
        request().write(),
    ];
    for at in 0..16 {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x20;
        wrong.push(bytes);
    }
    for length in [0u16, 3, 513, 65_535] {
        let mut bytes = whole.clone();
        bytes[18..20].copy_from_slice(&length.to_be_bytes());
        wrong.push(bytes);
    }
    for bytes in wrong {
        let mut end = End::new(Connection::initiator(Config::default(), b"").unwrap());
        end.drain();
        end.on_the_way.clear();
        end.connection.take(&bytes);
        end.drain();
        assert_eq!(end.told.terminated, Some(Ended::ByUs(Fault::Startup)), "{bytes:02x?}");
        assert_eq!((end.told.closed, end.on_the_way.len()), (Some(Closed::Terminated), 0));
    }
}

#[test]
fn a_request_with_everything_wrong_ends_the_stream_without_a_word() {
    let whole = request().write();
    for at in 0..16 {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x20;
        expect_no_word(&bytes);
    }
    for length in [0u16, 3, 513, 65_535] {
        let mut bytes = whole.clone();
        bytes[18..20].copy_from_slice(&length.to_be_bytes());
        expect_no_word(&bytes);
    }
    expect_no_word(&Startup { is_reply: true, ..request() }.write());
    // RFC 5044 7.1.2: an initiator waits for the reply.
    expect_no_word(&[whole, vec![0]].concat());
    expect_no_word(b"GET / HTTP/1.1\r\n\r\n");
}

fn expect_no_word(bytes: &[u8]) {
    let mut end = responder(Config::default());
    end.connection.take(bytes);
    end.drain();
    assert_eq!(end.told.terminated, Some(Ended::ByUs(Fault::Startup)), "{bytes:02x?}");
    assert_eq!((end.told.closed, end.on_the_way.len()), (Some(Closed::Terminated), 0));
    assert_eq!(end.connection.accept(b""), Err(ConfigError::NoRequest));
}

#[test]
fn a_stream_that_ends_while_it_begins_is_lost_and_gives_everything_back() {
    let whole = request().write();
    for end_at in 0..whole.len() {
        let mut end = responder(Config::default());
        end.post(3, 10);
        end.connection.take(&whole[..end_at]);
        end.connection.peer_closed();
        end.drain();
        assert_eq!(end.told.closed, Some(Closed::Lost));
        assert_eq!(end.connection.reclaim().receives.len(), 3);
    }
}
