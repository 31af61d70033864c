//! What initiators are told of them.

use sanwire_iscsi::{Directory, Portal};

use crate::manage::testing::{any_port, config};
use crate::server::Server;

#[test]
fn initiators_are_told_of_the_portals_of_targets_and_of_nothing_else_that_listens() {
    let mut config = config(&["a=ram:1M"]);
    let wires = ["visa-tcp:127.0.0.1:1", "iscsi:127.0.0.1:1"];
    config.wires.extend(wires.map(|wire| any_port(wire.parse().unwrap())));
    let server = Server::start(config).unwrap();
    let (address, group_tag) = server.wires().last().and_then(|wire| wire.portal()).unwrap();
    let initiator = "iqn.2026-11.org.sanwire:somebody".parse().unwrap();
    let told = server.exports.visible(&initiator, address.ip(), &Portal { address, group_tag, is_iser: false });
    let addresses: Vec<&[String]> = told.iter().map(|(_, addresses)| &addresses[..]).collect();
    assert_eq!(addresses, [[format!("{address},1")]]);
    server.stop().unwrap();
}
