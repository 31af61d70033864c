//! What the protocols count in their own words, and how logins have ended.

use std::collections::BTreeMap;

use super::{Family, Labels, Sample};
use crate::counting::Counted;
use crate::front::{LOGIN_RESULTS, TallyFamily};
use crate::login_listener::LoginResults;
use crate::sessions::SessionCount;

/// What front ends have counted, of all shards together.
pub(super) fn of_protocols(counted: &[Counted]) -> Vec<Family> {
    let mut sums = BTreeMap::<&TallyFamily, BTreeMap<&str, u64>>::new();
    for (family, name, count) in counted.iter().flat_map(|shard| &shard.tallies) {
        *sums.entry(family).or_default().entry(name).or_default() += count;
    }
    let families = sums.into_iter().map(|(family, counts)| Family {
        name: family.name,
        help: family.help,
        samples: (counts.into_iter())
            .map(|(name, count)| (0, Labels::of([(family.label, name)]), Sample::Counter(count)))
            .collect(),
    });
    families.collect()
}

/// The sessions of each iSCSI target, with their connections.
pub(super) fn of_targets(counted: &[Counted]) -> Vec<Family> {
    let mut targets = BTreeMap::<&str, [u64; 2]>::new();
    let sessions = counted.iter().flat_map(|shard| &shard.sessions);
    for SessionCount { host, connections, .. } in sessions {
        let Some(target) = &host.target else { continue };
        let [of_target, of_connections] = targets.entry(target).or_default();
        *of_target += 1;
        *of_connections += *connections as u64;
    }
    let of = |name, help, which: usize| {
        let samples = (0..)
            .zip(&targets)
            .map(|(place, (target, counts))| (place, Labels::of([("target", target)]), Sample::Gauge(counts[which])));
        Family { name, help, samples: samples.collect() }
    };
    vec![
        of("sanwire_iscsi_sessions", "Sessions with the target", 0),
        of("sanwire_iscsi_connections", "TCP connections of its sessions", 1),
    ]
}

/// How logins have ended, of each service; one without a portal has no samples.
pub(super) fn of_logins(results: &BTreeMap<&'static TallyFamily, LoginResults>) -> Vec<Family> {
    let family = |family: &'static TallyFamily| {
        let told = results.get(family).into_iter().flat_map(|LoginResults { passed, redirected, refused, lost }| {
            [("passed", *passed), ("redirected", *redirected), ("refused", *refused), ("lost", *lost)]
        });
        let samples = told.map(|(result, count)| (0, Labels::of([(family.label, result)]), Sample::Counter(count)));
        Family { name: family.name, help: family.help, samples: samples.collect() }
    };
    LOGIN_RESULTS.map(family).into()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::super::super::testing::{any_port, config};
    use super::super::super::{Answer, Manager, Request};

    #[test]
    fn logins_are_told_by_their_results() {
        let mut config = config(&["a=ram:1M"]);
        let wires = ["iscsi:127.0.0.1:1", "visa-tcp:127.0.0.1:1"];
        config.wires.extend(wires.map(|wire| any_port(wire.parse().unwrap())));
        let mut manager = Manager::start(config.clone(), Box::new(move || Ok(config.clone()))).unwrap();
        let portals = [1, 2].map(|wire| manager.target().wires()[wire].portal().unwrap().0);
        drop(TcpStream::connect(portals[0]).unwrap());
        let _strangers = portals.map(|portal| {
            let mut stranger = TcpStream::connect(portal).unwrap();
            stranger.write_all(&[0xff; 48]).unwrap();
            stranger
        });
        let until = Instant::now() + Duration::from_secs(20);
        let is_told = |manager: &mut Manager, line: &str| {
            let Ok(Answer::Metrics(metrics)) = manager.execute(Request::Metrics) else { panic!("the metrics") };
            metrics.as_str().lines().any(|other| other == line)
        };
        // Each is counted as what it is.
        for (family, result) in [("iscsi_logins", "lost"), ("iscsi_logins", "refused"), ("visa_greetings", "refused")] {
            let line = format!("sanwire_{family}_total{{result=\"{result}\"}} 1");
            while !is_told(&mut manager, &line) {
                assert!(Instant::now() < until, "{line}");
                thread::sleep(Duration::from_millis(10));
            }
        }
        assert!(is_told(&mut manager, "sanwire_iscsi_logins_total{result=\"passed\"} 0"));
        assert!(is_told(&mut manager, "sanwire_hyperscsi_handshakes_total{result=\"established\"} 0"));
        manager.into_target().stop().unwrap();
    }
}
