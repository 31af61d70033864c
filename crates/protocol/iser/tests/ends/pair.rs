//! One of our datamovers, and a bare RDMA connection that says to it whatever a test wants.

use sanwire_iscsi::wire::Header;
use sanwire_iscsi::{ConnectionParameters, Datamover, Step};
use sanwire_iser::wire::{IserHeader, SetUp};
use sanwire_iwarp::{Config, Connection, Event, Message, Order, SendKind, Stag};

pub struct Pair {
    pub ours: Box<dyn Datamover>,
    pub theirs: Connection,
    /// What the bare end was told.
    pub told: Vec<Event>,
}

fn bare() -> Config {
    Config { seed: [7; 16], ..Config::default() }
}

fn with_receives(mut connection: Connection) -> Connection {
    (0..200).for_each(|_| connection.post_receive(vec![0; 9000].into()).expect("room"));
    connection
}

impl Pair {
    /// Our target, and somebody who has connected to it and said this.
    pub fn of_target(private_data: &[u8]) -> Pair {
        let theirs = with_receives(Connection::initiator(bare(), private_data).expect("a connection"));
        Pair { ours: sanwire_iser::target([1; 32]), theirs, told: Vec::new() }.connected()
    }

    /// Our initiator, and somebody to whom it has connected.
    pub fn of_initiator() -> Pair {
        Pair::of_initiator_with([1; 32])
    }

    /// The same with another seed, as each connection has one.
    pub fn of_initiator_with(seed: [u8; 32]) -> Pair {
        let theirs = with_receives(Connection::responder(bare()).expect("a connection"));
        let mut pair = Pair { ours: sanwire_iser::initiator(seed), theirs, told: Vec::new() }.connected();
        pair.ours.begin(&ConnectionParameters { receive_data_max_bytes: 1024, ..ConnectionParameters::default() }, 32);
        pair
    }

    fn connected(mut self) -> Pair {
        self.pass();
        if matches!(self.told.last(), Some(Event::Requested(_))) {
            self.theirs.accept(&SetUp { has_addresses: true, lacks_invalidation: false }.write()).expect("a request");
        }
        self.pass();
        assert!(self.theirs.is_established(), "{:?}", self.told);
        self
    }

    /// Everything that is to be sent arrives.
    pub fn pass(&mut self) {
        loop {
            let to_them: Vec<u8> = std::iter::from_fn(|| self.ours.pop()).flat_map(|packet| packet.to_vec()).collect();
            self.theirs.take(&to_them);
            self.told.extend(std::iter::from_fn(|| self.theirs.poll_event()));
            let to_us: Vec<u8> =
                std::iter::from_fn(|| self.theirs.poll_transmit()).flat_map(|packet| packet.to_vec()).collect();
            let mut rest = &to_us[..];
            while !rest.is_empty() {
                let taken = self.ours.take(rest);
                rest = &rest[taken..];
                if taken == 0 {
                    break;
                }
            }
            if to_them.is_empty() && to_us.is_empty() {
                return;
            }
        }
    }

    /// The bare end sends a message, and it arrives.
    pub fn say(&mut self, bytes: Vec<u8>, invalidate: Option<Stag>) {
        let kind = SendKind { solicited: false, invalidate };
        self.theirs.order(Order::Send { kind, head: bytes.into(), data: None }, None).expect("room");
        self.pass();
    }

    /// The next message that the bare end has got.
    pub fn heard(&mut self) -> Option<Message> {
        let at = self.told.iter().position(|event| matches!(event, Event::Message(_)))?;
        let Event::Message(message) = self.told.remove(at) else { return None };
        Some(message)
    }

    /// The next PDU without data, which our end must have got.
    pub fn got(&mut self) -> Header {
        match self.ours.poll() {
            Step::Pdu(pdu) => pdu.header,
            other => panic!("{other:?}"),
        }
    }

    pub fn is_torn(&mut self) -> bool {
        matches!(self.ours.poll(), Step::Torn) && matches!(self.ours.poll(), Step::Torn)
    }
}

/// A PDU as it stands in a message.
pub fn message(control: IserHeader, mut header: Header, data: &[u8]) -> Vec<u8> {
    header.set_data_bytes(data.len());
    [&control.write()[..], header.as_bytes(), data].concat()
}
