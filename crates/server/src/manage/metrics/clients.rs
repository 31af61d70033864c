//! What was counted of each client, where the configuration asks for it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Family, Labels, Placed, Sample};
use crate::client_counts::{ClientLink, Moved};
use crate::counting::Counted;
use crate::manage::Manager;

impl Manager {
    /// Of each client that is known or connected, with the volumes and links that it uses.
    pub(super) fn of_clients(&self, counted: &[Counted]) -> Vec<Family> {
        if !self.target.counts_clients() {
            return Vec::new();
        }
        let sessions = || counted.iter().flat_map(|shard| &shard.sessions);
        let connected: BTreeSet<&str> = sessions().map(|session| session.host.owner()).collect();
        let known: BTreeSet<String> = self.target.clients().list().iter().map(|client| client.id.to_string()).collect();
        let clients: BTreeSet<&str> = connected.iter().copied().chain(known.iter().map(String::as_str)).collect();
        let disks = self.target.units().iter();
        let names: BTreeMap<u16, &str> = disks.iter().map(|(_, disk)| (disk.slot(), disk.identity().name())).collect();
        let mut moved = BTreeMap::<(&str, &str), Moved>::new();
        for session in sessions() {
            for (slot, bytes) in session.moved.iter() {
                let Some(name) = names.get(&slot) else { continue };
                let sum = moved.entry((session.host.owner(), name)).or_default();
                sum.read_bytes += bytes.read_bytes;
                sum.written_bytes += bytes.written_bytes;
            }
        }
        let is_connected =
            |client: &&str| (Labels::of([("client", client)]), Sample::Gauge(connected.contains(client).into()));
        let bytes = |name, help, value: &dyn Fn(&Moved) -> u64| {
            let samples = moved.iter().map(|((client, volume), bytes)| {
                (Labels::of([("client", client), ("volume", volume)]), Sample::Counter(value(bytes)))
            });
            family(name, help, samples)
        };
        let mut families = vec![
            family(
                "sanwire_client_connected",
                "Whether a client has a session: one that is known, or has one",
                clients.iter().map(is_connected),
            ),
            bytes("sanwire_client_read_bytes", "Bytes that were read in the sessions that it has", &|moved| {
                moved.read_bytes
            }),
            bytes("sanwire_client_written_bytes", "Bytes that were written in the sessions that it has", &|moved| {
                moved.written_bytes
            }),
        ];
        families.extend(of_links(counted.iter().flat_map(|shard| &shard.links)));
        families
    }
}

fn of_links<'a>(links: impl Iterator<Item = &'a ClientLink>) -> [Family; 2] {
    let mut by_labels = BTreeMap::<_, &ClientLink>::new();
    // A client with several sessions may have several connections by one link.
    links.for_each(|link| {
        let best = by_labels.entry((&link.client, &link.wire, &link.peer)).or_insert(link);
        if link.is_up && !best.is_up {
            *best = link;
        }
    });
    let labels = |link: &ClientLink| Labels::of([("client", &link.client), ("wire", &link.wire), ("peer", &link.peer)]);
    let up = by_labels.values().map(|link| (labels(link), Sample::Gauge(link.is_up.into())));
    let up = family("sanwire_link_up", "Whether a link of a HyperSCSI connection answers", up);
    let measured = by_labels.values().filter_map(|link| Some((labels(link), link.round_trip?)));
    let round_trips = measured.map(|(labels, time)| (labels, Sample::SecondsNow(time.as_secs_f64())));
    [up, family("sanwire_link_round_trip_seconds", "The round trip of its packets, once it was measured", round_trips)]
}

fn family(name: &'static str, help: &'static str, samples: impl Iterator<Item = (Labels, Sample)>) -> Family {
    let samples: Vec<Placed> = (0..).zip(samples).map(|(place, (labels, sample))| (place, labels, sample)).collect();
    Family { name, help, samples }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::super::testing::config;
    use super::super::super::{Answer, Request};
    use super::*;

    fn link(peer: &str, is_up: bool) -> ClientLink {
        let round_trip = is_up.then_some(Duration::from_micros(250));
        ClientLink { client: "c".into(), wire: "hs-eth:eth0".into(), peer: peer.into(), is_up, round_trip }
    }

    #[test]
    fn a_link_is_up_when_any_connection_goes_by_it() {
        let links = [link("a", false), link("a", true), link("b", false)];
        let [up, round_trips] = of_links(links.iter());
        let told: Vec<String> = up.samples.iter().map(|(_, labels, sample)| format!("{labels:?} {sample:?}")).collect();
        assert!(told.len() == 2 && told[0].contains("Gauge(1)") && told[1].contains("Gauge(0)"), "{told:?}");
        assert_eq!(round_trips.samples.len(), 1);
    }

    #[test]
    fn clients_are_told_only_where_that_is_asked_for() {
        for asked in [false, true] {
            let mut config = config(&["a=ram:1M"]);
            let client = "0123456789abcdef0123456789abcdef";
            config.clients = vec![crate::ClientConfig::new(client.parse().unwrap())];
            config.metrics_of_clients = asked;
            let mut manager = Manager::start(config.clone(), Box::new(move || Ok(config.clone()))).unwrap();
            let Ok(Answer::Metrics(metrics)) = manager.execute(Request::Metrics) else { panic!("the metrics") };
            let line = format!("sanwire_client_connected{{client=\"{client}\"}} 0");
            assert_eq!(metrics.as_str().lines().any(|other| other == line), asked, "{}", metrics.as_str());
            manager.into_target().stop().unwrap();
        }
    }
}
