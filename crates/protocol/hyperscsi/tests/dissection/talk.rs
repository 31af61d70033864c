//! A talk of both ends without loss.

use std::time::Duration;

use sanwire_buffer::Head;
use sanwire_core::{LinkId, Lun, MacAddress, Path, Peer, Protection};
use sanwire_hyperscsi::wire::Prefix;
use sanwire_hyperscsi::wire::command::{Ask, Function};
use sanwire_hyperscsi::wire::packet::put_checksum;
use sanwire_hyperscsi::wire::setup::Discovery;
use sanwire_hyperscsi::{Server, ServerConfig, discovery};
use sanwire_scsi::{Cdb, Reply, Status, Task};

use crate::common::{self, Ends, Sent, bytes, client_config, nines};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wire {
    Ethernet,
    Udp,
}

fn path(wire: Wire, host: u8) -> Path {
    match wire {
        Wire::Ethernet => Path { link: LinkId(0), peer: Peer::Ethernet(MacAddress([2, 0, 0, 0, 0, host])) },
        Wire::Udp => common::path(host),
    }
}

/// One logical unit of each level; other numbers are of none.
fn level(lun: Option<Lun>) -> Protection {
    lun.and_then(|lun| u8::try_from(lun.number()).ok()).and_then(Protection::from_code).unwrap_or_default()
}

fn server_config(wire: Wire) -> ServerConfig {
    let client = path(wire, 1).peer;
    common::server_config(Box::new(move |peer: Peer, _: Option<_>| peer == client), Box::new(level))
}

/// The beginning of a handshake by somebody who only knows what one looks like.
fn nonsense(wire: Wire, attempt: u64) -> Vec<u8> {
    let question = bytes(&discovery(&client_config(path(wire, 2)), attempt));
    let (prefix, _, body) = Prefix::read(&question).unwrap();
    let (question, _) = Discovery::read(body).unwrap();
    let body = Discovery { announce_only: false, noise: &[0; 32], ..question }.write();
    let mut head = Head::new();
    head.extend(&prefix.write(body.len()));
    head.extend(&body);
    put_checksum(None, &mut head, &[]);
    head.to_vec()
}

fn reply(task: &Task) -> Reply {
    match task.cdb.operation_code() {
        0 => Reply { sense: vec![0x70; 18], ..Reply::bare(Status::CheckCondition) },
        _ => nines(task),
    }
}

fn ends(wire: Wire) -> Ends {
    let (client, server) = (path(wire, 1), path(wire, 2));
    let mut ends = Ends::new([client, server], client_config(server), server_config(wire), reply);
    ends.deliver(true, bytes(&discovery(&client_config(server), 77)));
    ends
}

/// A talk in which everything is said that the protocol can say without loss, and a refusal.
pub(crate) fn talk(wire: Wire) -> Vec<Sent> {
    let mut talk = ends(wire);
    talk.run(Duration::from_secs(2));
    assert!(talk.client.server().is_some(), "connected");
    // The first answer tells how the logical unit is guarded.
    talk.give(300, Ask::Command(Cdb::from([0u8; 6])), &[], 0);
    talk.run(Duration::from_secs(1));
    talk.give(300, Ask::Command(Cdb::from([0u8; 6])), &[], 0);
    talk.give(300, Ask::Command(Cdb::from([0x88u8, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 8, 0, 0])), &[], 4096);
    talk.give(300, Ask::Command(Cdb::from([0x2au8, 0, 0, 0, 0, 1, 0, 0, 128, 0])), &[6; 65_536], 0);
    talk.give(300, Ask::Command(Cdb::from([0x7fu8; 32])), &[6; 1000], 20);
    talk.give(300, Ask::Manage { function: Function::LogicalUnitReset, task: 0 }, &[], 0);
    talk.run(Duration::from_secs(2));
    for lun in 1..=4 {
        talk.give(lun, Ask::Command(Cdb::from([0x28u8, 0, 0, 0, 0, 0, 0, 0, 8, 0])), &[], 4096);
        talk.run(Duration::from_secs(1));
        talk.give(lun, Ask::Command(Cdb::from([0x2au8, 0, 0, 0, 0, 0, 0, 0, 8, 0])), &[6; 4096], 0);
        talk.run(Duration::from_secs(1));
    }
    // 400,000 bytes need more than 255 fragments: the number's high bits are used.
    talk.give(300, Ask::Command(Cdb::from([0x28u8, 0, 0, 0, 0, 0, 0, 3, 13, 0])), &[], 400_000);
    talk.run(Duration::from_secs(2));
    assert_eq!(talk.answers.len(), 15);
    // Many handshakes make it ask for a cookie.
    talk.server = Server::new(server_config(wire));
    (0..65).for_each(|attempt| talk.deliver(true, nonsense(wire, attempt)));
    talk.give(300, Ask::Command(Cdb::from([0x12u8, 0, 0, 0, 36, 0])), &[], 36);
    talk.run(Duration::from_secs(3));
    assert_eq!(talk.answers.len(), 16);
    talk.client.disconnect(talk.now);
    talk.run(Duration::from_millis(10));
    talk.sent
}
