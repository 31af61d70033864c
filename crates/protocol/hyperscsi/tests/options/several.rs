//! Clients with several connections: processes of one host, which have one key.

use std::time::Duration;

use sanwire_hyperscsi::DesiredOptions;

use crate::net::{Net, READ, WRITE, identity};
use crate::{CALM, noise, read, terms};

/// Connections of clients with these keys; each key has the weight that follows.
fn connections(keys: &[usize], weights: &[u16], server: DesiredOptions) -> Net {
    let mut terms = terms(server);
    for (key, weight) in weights.iter().enumerate() {
        terms.weights.insert(identity(key).client_id(), *weight);
    }
    Net::with_keys(terms, keys.iter().map(|key| (*key, DesiredOptions::default())).collect(), CALM)
}

fn capped(cap: u64) -> DesiredOptions {
    DesiredOptions { rate_cap_bytes_per_second: Some(cap), ..DesiredOptions::default() }
}

fn caps(net: &Net) -> Vec<Option<u64>> {
    (0..net.clients.len()).map(|number| net.agreed(number)?.rate_cap_bytes_per_second).collect()
}

#[test]
fn a_client_with_more_connections_gets_no_more_than_one_of_the_same_weight() {
    for (keys, weights, ratio) in
        [(&[0, 0, 1][..], [1, 1], 1.0), (&[0, 1, 1][..], [3, 1], 3.0), (&[0, 0, 0, 0, 1][..], [100, 300], 1.0 / 3.0)]
    {
        let got = read(connections(keys, &weights, DesiredOptions::default()));
        let of = |key| keys.iter().zip(&got).filter(|(of, _)| **of == key).map(|(_, bytes)| *bytes as f64).sum::<f64>();
        let off = of(0) / of(1) / ratio;
        assert!((0.9..1.1).contains(&off), "{keys:?} of weights {weights:?}: {got:?}");
    }
}

#[test]
fn what_a_server_receives_is_divided_by_clients_and_not_by_connections() {
    let mut net = connections(&[0, 0, 1], &[1, 1], DesiredOptions::default());
    net.run(Duration::from_secs(1));
    let mut packets: Vec<u32> =
        net.server.connection_statuses().iter().map(|(_, status)| status.windows.inward.in_flight_packets()).collect();
    packets.sort_unstable();
    assert_eq!(packets, [64, 64, 128]);
}

#[test]
fn a_cap_holds_for_all_connections_of_a_client_together() {
    let cap = 2_000_000;
    let mut net = connections(&[0, 0, 1], &[], capped(cap));
    net.run(Duration::from_secs(2));
    assert_eq!(caps(&net), [Some(cap / 2), Some(cap / 2), Some(cap)]);
    let data = noise(50_000);
    let fits = |bytes: u64| assert!((cap * 5 * 9 / 10..cap * 5 * 21 / 20).contains(&bytes), "{bytes} of {}", cap * 5);
    net.run_with(Duration::from_secs(5), |net| {
        (0..2).for_each(|number| while net.order(number, 0, WRITE, &data, 0) {});
    });
    fits(net.sent_by[0] + net.sent_by[1]);
    net.run(Duration::from_secs(2));
    let before = net.sent_to[0] + net.sent_to[1];
    net.run_with(Duration::from_secs(5), |net| {
        (0..2).for_each(|number| while net.order(number, 0, READ, &[], 50_000) {});
    });
    fits(net.sent_to[0] + net.sent_to[1] - before);
    assert_eq!(net.server.counters().excess, 0);
}

#[test]
fn a_connection_that_ends_leaves_its_part_of_the_cap_to_the_others() {
    let mut net = connections(&[0, 0, 0, 1], &[], capped(900_000));
    net.run(Duration::from_secs(2));
    assert_eq!(caps(&net), [Some(300_000), Some(300_000), Some(300_000), Some(900_000)]);
    let now = net.now;
    net.clients[1].disconnect(now);
    net.run(Duration::from_secs(1));
    assert_eq!(caps(&net), [Some(450_000), None, Some(450_000), Some(900_000)]);
    net.clients[0].disconnect(now);
    net.run(Duration::from_secs(1));
    assert_eq!(caps(&net), [None, None, Some(900_000), Some(900_000)]);
    assert_eq!(net.lost, 0);
}
