//! What initiators are told of them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use sanwire_iscsi::{Directory, Portal, PortalCarrier};

use crate::error::StartError;
use crate::manage::testing::{any_port, config};
use crate::server::Server;
use crate::server::portals::is_there;

#[test]
fn initiators_are_told_of_the_portals_of_targets_and_of_nothing_else_that_listens() {
    let mut config = config(&["a=ram:1M"]);
    let wires = ["visa-tcp:127.0.0.1:1", "iscsi:127.0.0.1:1"];
    config.wires.extend(wires.map(|wire| any_port(wire.parse().unwrap())));
    let server = Server::start(config).unwrap();
    let (address, group_tag) = server.wires().last().and_then(|wire| wire.portal()).unwrap();
    let initiator = "iqn.2026-11.org.sanwire:somebody".parse().unwrap();
    let told =
        server.exports.visible(&initiator, address.ip(), &Portal { address, group_tag, carrier: PortalCarrier::Tcp });
    let addresses: Vec<&[String]> = told.iter().map(|(_, addresses)| &addresses[..]).collect();
    assert_eq!(addresses, [[format!("{address},1")]]);
    server.stop().unwrap();
}

/// A server at a free port of this host, where both are spoken.
fn both_at_one_port() -> Server {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut config = config(&["a=ram:1M"]);
    config.wires = [format!("iscsi:{free}"), format!("iser:{free}")].iter().map(|wire| wire.parse().unwrap()).collect();
    Server::start(config).unwrap()
}

#[test]
fn a_port_of_both_is_told_to_those_of_either_kind() {
    let server = both_at_one_port();
    let [plain, rdma] = server.wires() else { panic!("{:?}", server.wires()) };
    assert_eq!(plain.portal(), rdma.portal());
    let (address, group_tag) = plain.portal().unwrap();
    let initiator = "iqn.2026-11.org.sanwire:somebody".parse().unwrap();
    for carrier in [PortalCarrier::Tcp, PortalCarrier::Iwarp] {
        let told = server.exports.visible(&initiator, address.ip(), &Portal { address, group_tag, carrier });
        let addresses: Vec<&[String]> = told.iter().map(|(_, addresses)| &addresses[..]).collect();
        assert_eq!(addresses, [[format!("{address},1")]]);
    }
    server.stop().unwrap();
}

/// A plain login request is refused with an answer, an RDMA connection is answered before any login: each by the first bytes.
#[test]
fn a_port_of_both_sees_by_the_first_bytes_who_comes() {
    let server = both_at_one_port();
    let (address, _) = server.wires()[0].portal().unwrap();
    let mut request = [0; 48];
    (request[0], request[1]) = (0x43, 0x87);
    let mut rdma = b"MPA ID Req Frame".to_vec();
    rdma.extend([0x50, 2, 0, 8, 0, 128, 0, 1, 0x80, 0, 0, 0]);
    for (said, heard) in [(&request[..], &[0x23][..]), (&rdma, b"MPA ID Rep Frame")] {
        for cut in [1, said.len()] {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            let (first, rest) = said.split_at(cut);
            stream.write_all(first).unwrap();
            if !rest.is_empty() {
                std::thread::sleep(Duration::from_millis(20));
                stream.write_all(rest).unwrap();
            }
            let mut answer = vec![0; heard.len()];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer, heard, "{cut}");
        }
    }
    server.stop().unwrap();
}

#[test]
fn ports_are_shared_by_iscsi_and_iser_of_one_group_and_by_nothing_else() {
    let server = both_at_one_port();
    let (address, _) = server.wires()[0].portal().unwrap();
    server.stop().unwrap();
    for second in [format!("iser:{address},2"), format!("visa-tcp:{address}")] {
        let mut config = config(&["a=ram:1M"]);
        config.wires = [format!("iscsi:{address}"), second].iter().map(|wire| wire.parse().unwrap()).collect();
        assert!(matches!(Server::start(config), Err(StartError::Wire { .. })));
    }
}

#[test]
fn a_portal_is_there_while_its_address_is_one_of_this_host() {
    assert!(is_there("127.0.0.1:3260".parse().unwrap()) && is_there("[::]:3260".parse().unwrap()));
    // A documentation prefix: no host has it.
    assert!(!is_there("192.0.2.1:3260".parse().unwrap()));
}

#[test]
fn a_portal_whose_adapter_is_gone_takes_no_connections_and_one_of_tcp_beside_it_does() {
    let server = both_at_one_port();
    let wires = ["iser:127.0.0.1:3260,path=rdma", "iser:127.0.0.1:3260", "hs-eth:lo"].map(|wire| wire.parse().unwrap());
    let told = || wires.each_ref().map(|wire| server.takes_connections(wire));
    assert_eq!(told(), [Some(true), Some(true), None]);
    for (is_open, by_adapter) in [(false, Some(false)), (true, Some(true))] {
        server.logins.note_portal("127.0.0.1:3260".parse().unwrap(), is_open);
        assert_eq!(told(), [by_adapter, Some(true), None]);
    }
    server.stop().unwrap();
}
